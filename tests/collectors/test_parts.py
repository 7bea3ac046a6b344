"""The pure parts: numbering of trajectories and admission, against plain models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.loop.episode_totals import EpisodeTotals
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.times import LoopSeconds
from headrace.collectors.messages import AnyMessage, Proceed, Progress, Reset, Stop
from headrace.collectors.multi.admission import Admission
from headrace.collectors.statistics import Tally
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame


@st.composite
def histories(draw):
    """Rollouts of ends, masks (the step after an end, sometimes) and resets of all copies."""
    envs, steps, rollouts = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    shape = (rollouts * steps, envs)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ended = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    masked = np.zeros(shape, bool)
    if draw(st.booleans()):
        for step in range(1, len(ended)):
            masked[step] = ended[step - 1]
            ended[step] &= ~masked[step]
    restarted = rng.random(len(ended)) < draw(st.sampled_from([0.0, 0.3]))
    return steps, ended, masked, restarted


@given(histories())
def test_numbering_against_a_plain_count(history):
    # CB5.
    steps, ended, masked, restarted = history
    numbering = EpisodeNumbering(ended.shape[1])
    starts = np.zeros_like(ended)
    begins = np.ones(ended.shape[1], bool)
    for step in range(len(ended)):
        starts[step] = (begins | restarted[step]) & ~masked[step]
        begins = np.where(masked[step], begins | restarted[step], ended[step])
    found = []
    for begin in range(0, len(ended), steps):
        part = slice(begin, begin + steps)
        found.append(numbering.number(starts[part], masked[part]))
    ids, positions = (np.concatenate(each, axis=1).T for each in zip(*found, strict=True))

    next_id = 0
    current, length = [-1] * ended.shape[1], [0] * ended.shape[1]
    for step in range(len(ended)):
        for env in range(ended.shape[1]):
            if masked[step, env]:
                assert (ids[step, env], positions[step, env]) == (-1, 0)
                continue
            if starts[step, env]:
                current[env], length[env] = next_id, 0
                next_id += 1
            assert (ids[step, env], positions[step, env]) == (current[env], length[env])
            length[env] += 1


@given(histories())
def test_totals_of_episodes_against_a_plain_sum(history):
    # CT: the returns and lengths of statistics.
    steps, ended, masked, restarted = history
    rewards = np.arange(ended.size, dtype=np.float32).reshape(ended.shape)
    envs = np.arange(ended.shape[1])
    totals = EpisodeTotals(len(envs))
    open_, expected = [(0.0, 0)] * len(envs), []
    for begin in range(0, len(ended), steps):
        part = slice(begin, begin + steps)
        last = begin + steps - 1
        going_on = envs[ended[last] & ~masked[last]][::2].copy()
        if restarted[begin]:
            totals.reset(envs[1:])
            open_[1:] = [(0.0, 0)] * (len(envs) - 1)
        for step in range(begin, begin + steps):
            for env in envs[~masked[step]]:
                open_[env] = (open_[env][0] + float(rewards[step, env]), open_[env][1] + 1)
                if ended[step, env] and not (step == last and env in going_on):
                    expected.append(open_[env])
                    open_[env] = (0.0, 0)
        rows = np.flatnonzero(masked[part])
        # Ends of both kinds, in columns whose rows are apart, as narrow columns of a store are.
        columns = np.zeros(ended[part].shape, [("reward", "f4"), ("terminated", "?"), ("truncated", "?")])
        columns["reward"] = rewards[part]
        columns["terminated"][:, ::2] = ended[part][:, ::2]
        columns["truncated"][:, 1::2] = ended[part][:, 1::2]
        assert totals.add(*(columns[name] for name in columns.dtype.names), rows, going_on) == expected
        expected.clear()


class Granted:
    """Rollouts that an admission grants, as (worker, at_random)."""

    def __init__(self, frames, total, random_frames=0, sync=False):
        self.begun, self.blocked, self.tally = [], set(), Tally()
        self.admission = Admission(
            self.tally,
            frames,
            total,
            random_frames,
            sync,
            None,
            self.blocked.__contains__,
            lambda worker, at_random: self.begun.append((worker, at_random)),
        )

    def done(self, worker, frames):
        """A rollout with so many real frames is handed out, and another is owed."""
        self.tally.add(StepCounts(frames), 1)
        self.admission.done(worker)
        self.admission.owe(worker)

    @property
    def workers(self):
        return [worker for worker, _ in self.begun]


class PlainAdmission:
    """The rule for the next rollout, read from lists: every worker is looked at for each grant."""

    def __init__(self, frames, total):
        self.frames, self.total, self.handed_out = frames, total, 0
        self.owed = [0] * len(frames)
        self.collecting = [0] * len(frames)
        self.complete = [0] * len(frames)
        self.begun, self.blocked = [], set()

    def settle(self):
        while True:
            under_way = sum(
                (now + done) * frames
                for now, done, frames in zip(self.collecting, self.complete, self.frames, strict=True)
            )
            free = [w for w, owed in enumerate(self.owed) if owed and w not in self.blocked]
            if not free or (self.total > 0 and self.handed_out + under_way >= self.total):
                return
            worker = min(free, key=lambda w: (self.collecting[w], self.last_turn(w), w))
            self.owed[worker] -= 1
            self.collecting[worker] += 1
            self.begun.append(worker)

    def last_turn(self, worker):
        return max((turn for turn, each in enumerate(self.begun, 1) if each == worker), default=0)


@given(
    st.integers(1, 5),
    st.sampled_from([-1, 60, 200]),
    st.lists(
        st.tuples(
            st.sampled_from(["owe", "complete", "hand out", "die", "block", "free"]), st.integers(0, 4)
        ),
        max_size=60,
    ),
)
def test_grants_against_a_plain_model(workers, total, events):
    # CV7, CR3: the worker that has been idle for longest comes first, whatever happens in between.
    frames = [3 + worker for worker in range(workers)]
    granted, plain = Granted(frames, total), PlainAdmission(frames, total)
    admission = granted.admission
    admission.owe_all([2] * workers)
    plain.owed = [2] * workers
    plain.settle()
    for event, drawn in events:
        worker = drawn % workers
        if event == "owe":
            plain.owed[worker] += 1
            admission.owe(worker)
        elif event == "complete" and plain.collecting[worker]:
            plain.collecting[worker] -= 1
            plain.complete[worker] += 1
            admission.completed(worker)
        elif event == "hand out" and plain.complete[worker]:
            plain.complete[worker] -= 1
            plain.handed_out += frames[worker]
            plain.owed[worker] += 1
            granted.done(worker, frames[worker])
        elif event == "die":
            plain.owed[worker] += plain.collecting[worker]
            plain.collecting[worker] = 0
            plain.blocked.add(worker)
            granted.blocked.add(worker)
            admission.lost(worker)
        elif event == "block":
            plain.blocked.add(worker)
            granted.blocked.add(worker)
        elif event == "free":
            plain.blocked.discard(worker)
            granted.blocked.discard(worker)
            admission.unblocked(worker)
        plain.settle()
        assert granted.workers == plain.begun
        assert [admission.is_collecting(each) for each in range(workers)] == [n > 0 for n in plain.collecting]


def test_grants_stop_at_the_total():
    granted = Granted([10], 30)
    granted.admission.owe(0, 2)
    for _ in range(5):
        if not granted.admission.is_idle(0):
            granted.done(0, 10)
    assert granted.workers == [0, 0, 0]


def test_rollouts_under_way_of_all_workers_count_towards_the_total():
    # CR3.
    granted = Granted([10, 10, 10], 30)
    for worker in range(3):
        granted.admission.owe(worker, 2)
    assert granted.workers == [0, 0, 1]
    granted.done(1, 8)
    assert granted.workers == [0, 0, 1, 2]
    for worker in (0, 0, 2):
        granted.done(worker, 10)
    assert granted.workers == [0, 0, 1, 2]
    assert all(map(granted.admission.is_idle, range(3)))


def test_a_synchronous_batch_is_begun_as_a_whole():
    # CR3: also where the first workers' parts alone reach the total. CR4: and decided as a whole.
    granted = Granted([4, 4], 3, random_frames=9, sync=True)
    for batch in range(3):
        granted.admission.owe_batch()
        assert granted.begun == [(0, batch < 2), (1, batch < 2)]
        granted.begun.clear()
        for worker in range(2):
            granted.admission.done(worker)


@pytest.mark.parametrize(("random_frames", "random"), [(0, 0), (-3, 0), (1, 1), (10, 1), (11, 2), (25, 3)])
def test_random_frames_round_up_to_whole_rollouts(random_frames, random):
    # CR4.
    granted = Granted([10, 10], -1, random_frames)
    for worker in range(2):
        granted.admission.owe(worker, 2)
    assert [at_random for _, at_random in granted.begun] == [True] * random + [False] * (4 - random)


def test_grants_go_on_where_rows_were_masked():
    # CR3: those under way count in full, so never more is begun than is needed.
    granted = Granted([10], 18)
    granted.admission.owe(0, 2)
    assert len(granted.begun) == 2
    granted.done(0, 8)
    assert len(granted.begun) == 2  # 8 + 10 may be enough ...
    granted.done(0, 8)
    assert len(granted.begun) == 3  # ... but was not.


def test_grants_wait_while_blocked():
    granted = Granted([10, 10], -1)
    granted.blocked.add(0)
    for worker in range(2):
        granted.admission.owe(worker, 2)
    assert granted.workers == [1, 1]
    granted.blocked.clear()
    granted.admission.unblocked(0)
    assert granted.workers == [1, 1, 0, 0]


def test_tally():
    tally = Tally()
    tally.newest = 3
    tally.add(StepCounts(4, [(3.0, 2), (5.0, 4)], {1: 3, 2: 1, -1: 2}), 1)
    record = tally.record(running=True, paused=False)
    assert (record.frames, record.batches, record.episodes) == (4, 1, 2)
    assert (record.episode_return_mean, record.episode_length_mean) == (4.0, 3.0)
    assert (record.lag_min, record.lag_mean, record.lag_max) == (1, 1.75, 2)
    assert record.lag_histogram == {2: 3, 1: 1}
    with pytest.raises(AttributeError):
        record.frames = 3
    for _ in range(200):
        tally.add(StepCounts(1, [(1.0, 1)]), 1)
    assert tally.record(running=False, paused=False).episode_return_mean == 1.0  # Of the last 100.


def test_messages_travel_whole():
    one, other = Channel.pair(AnyMessage)
    counts = StepCounts(8, [(1.5, 3)], {-1: 4, 7: 4})
    seconds = LoopSeconds(0.1, 0.2, 0.3, 0.4)
    progress = Progress(counts=counts, closes_rollout=True, resets=3, all_wait=False, seconds=seconds)
    for message in (
        progress,
        Proceed(at_random=True, is_needed=True, updates_each_step=False),
        Reset(envs=[0, 3]),
        Stop(close_env=False),
    ):
        one.send(message, payload=b"behind")
        assert other.receive() == Frame(message, b"behind", [])
    one.close()
    with pytest.raises(hr.Disconnected):
        other.receive()
    with pytest.raises(hr.Disconnected):
        other.send(Proceed(at_random=False, is_needed=False, updates_each_step=True))
    other.close()


def test_rows_that_are_not_open_yet_owe_nothing():
    # The thread that listens looks at a worker (CX5) before another thread has opened its rows.
    rows = WorkerRows(None, None)
    assert not rows.owes_pages
    rows.close()
    rows.disown()
