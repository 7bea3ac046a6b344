"""Ctrl-C at every place where a batch is completed, counted and returned: none is lost, and none counts twice."""

import itertools

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, in_turn

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
# Where an inline rollout is complete: all calls from there on.
INLINE = (
    "collectors/collector.py",
    "collectors/inline/",
    "collectors/statistics",
    "collectors/batches/",
)
OF_WORKERS = (
    "collectors/multi_collector.py:MultiCollector.next",
    "collectors/multi/finished.py:FinishedBatches._hand_out",
    "collectors/statistics.py:Tally.",
    "collectors/batches/handing_out",
)
# All that lets workers begin rollouts.
ADMITTING = (
    "collectors/multi_collector.py:MultiCollector.next",
    "collectors/multi/",
    "collectors/statistics.py:Tally.",
    "collectors/updates/shared",
    "collectors/handle/handle.py",
    "leases/selector",
)
BEGINNING = ("collectors/multi/collection.py:Collection.begin", "leases/selector.py:PeerSelector.submit")


class Constant:
    """A policy whose weights change nothing."""

    def __init__(self):
        self.weights = {"w": np.zeros(1)}

    def __call__(self, observation):
        return np.zeros(len(observation), int)

    def state_dict(self):
        return self.weights

    def load_state_dict(self, weights):
        self.weights = weights


def received(collector, interrupt_at, point, within):
    """Asks for a batch, and again if Ctrl-C came; returns the batches that calls returned, and where it came."""
    batches = []

    def ask():
        batch = collector.next(timeout=40)
        batches.append(batch)  # Ctrl-C does not come here: this is not a module of Headrace.

    place = interrupt_at(point, ask, within=within)
    return batches, place


def check(batches, statistics):
    """Rows of each copy follow one another, and all of them are counted once."""
    for batch in batches:
        np.testing.assert_array_equal(batch["next_observation"], np.add(batch["observation"], [0, 0, 1]))
        np.testing.assert_array_equal(batch["t"], batch["observation"][..., 2])
    steps = [
        pair
        for b in batches
        for pair in zip(b["episode_id"].ravel().tolist(), b["t"].ravel().tolist(), strict=True)
    ]
    assert len(set(steps)) == len(steps)  # No batch comes twice.
    assert statistics.frames == sum(batch.frames for batch in batches)
    assert statistics.batches == len(batches)


@pytest.mark.parametrize("replay", [False, True])
def test_inline(interrupt_at, make_replay, replay):
    # CX1, CX7: a rollout is dropped and counted as such, or its batch is returned by the next call.
    dropped = returned = 0
    for point in itertools.count():
        options = {"replay_buffer": make_replay(SIGNATURE, capacity=400)} if replay else {}
        with hr.Collector(
            in_turn(counter_env_fns([50, 60])), frames_per_batch=4, num_envs=2, **options
        ) as collector:
            batches = [collector.next()]
            found, place = received(collector, interrupt_at, point, INLINE)
            if place is None:
                break
            batches += found
            state = collector.state_dict()
            batches += [collector.next(), collector.next()]
            statistics = collector.statistics()
            check(batches, statistics)
            dropped += statistics.frames_discarded > 0
            if state["unreturned"] is not None:
                returned += 1
                steps = [batch["observation"][0, :, 2].tolist() for batch in batches]
                assert steps == [[0, 1], [2, 3], [4, 5]]  # No reset.
                collector.load_state_dict(state)
                again = collector.next()
                np.testing.assert_array_equal(again["observation"], batches[1]["observation"])
                assert collector.statistics().frames == 8
    assert dropped
    assert returned


@pytest.mark.parametrize("sync", [False, True])
def test_workers(interrupt_at, sync):
    # CV7, CX7: the next call returns the batch that was about to be handed out.
    lengths = [50, 60]
    kind = {"num_workers": 1, "num_envs": 2, "sync": sync, "frames_per_batch": 4}
    with hr.MultiCollector(in_turn(counter_env_fns(lengths)), **kind) as collector:
        batches, returned = [collector.next(timeout=40)], 0
        for point in itertools.count():
            found, place = received(collector, interrupt_at, point, OF_WORKERS)
            batches += found
            state = collector.state_dict() if not found else None
            returned += state is not None and state["collector"]["unreturned"] is not None
            if place is None:
                break
            batches.append(collector.next(timeout=40))
        batches += [collector.next(timeout=40) for _ in range(3)]
        check(batches, collector.statistics())
        steps = [step for batch in batches for step in batch["observation"][0, :, 2].tolist()]
        assert steps == [step % 50 for step in range(len(steps))]
    assert returned


def test_a_batch_of_workers_that_was_not_returned_is_part_of_the_state(interrupt_at):
    # CQ3
    make = {"num_workers": 2, "sync": False, "frames_per_batch": 4}
    with hr.MultiCollector(lambda: CounterEnv(50), **make) as collector:
        for point in itertools.count():
            found, _ = received(collector, interrupt_at, point, OF_WORKERS)
            assert not found
            state = collector.state_dict()
            batch = collector.next(timeout=40)
            if state["collector"]["unreturned"] is not None:
                break
        frames = collector.statistics().frames
        collector.load_state_dict(state)
        again = collector.next(timeout=40)
        np.testing.assert_array_equal(again["episode_id"], batch["episode_id"])
        np.testing.assert_array_equal(again["observation"], batch["observation"])
        assert again.worker_idx == batch.worker_idx
        assert collector.statistics().frames == frames
        assert collector.next(timeout=40).frames == 4


def check_workers(batches, sync):
    """No step of a worker is missing, and none comes twice."""
    steps = {}
    for batch in batches:
        for lane, counts in enumerate(batch["t"].tolist()):
            steps.setdefault(lane if sync else batch.worker_idx, []).extend(counts)
    assert set(steps) <= {0, 1}
    for counts in steps.values():
        assert counts == [step % 500 for step in range(len(counts))]


@pytest.mark.parametrize("how", ["next", "published", "state"])
@pytest.mark.parametrize("kind", [{"sync": True}, {"sync": False}, {"sync": False, "max_staleness": 1}])
def test_workers_go_on(interrupt_at, how, kind):
    # CX1, CX7, CV7, CV8: wherever Ctrl-C comes, no worker is forgotten, and none begins twice.
    make = {"num_workers": 2, "num_envs": 1, "frames_per_batch": 4, **kind}
    with hr.MultiCollector(lambda: CounterEnv(500), Constant(), **make) as collector:
        batches = [collector.next(timeout=40)]

        def ask():
            if how == "published":
                collector.update_policy_weights_({"w": np.ones(1)})
            elif how == "state":
                collector.state_dict()
            batches.append(collector.next(timeout=40))

        for point in itertools.count():
            place = interrupt_at(point, ask, within=ADMITTING)
            if place is None:
                break
            batches += [collector.next(timeout=40) for _ in range(3)]
        check(batches, collector.statistics())
        check_workers(batches, kind["sync"])
        assert {batch.worker_idx for batch in batches} == ({None} if kind["sync"] else {0, 1})
    assert point > 20


@pytest.mark.parametrize("sync", [True, False])
def test_workers_begin(interrupt_at, sync):
    # CX1
    make = {"num_workers": 2, "num_envs": 1, "frames_per_batch": 4, "sync": sync}
    for point in itertools.count():
        with hr.MultiCollector(lambda: CounterEnv(500), **make) as collector:
            batches, place = received(collector, interrupt_at, point, BEGINNING)
            batches += [collector.next(timeout=40) for _ in range(3)]
            check(batches, collector.statistics())
            check_workers(batches, sync)
        if place is None:
            break
    assert point


def test_workers_go_on_when_items_that_waited_were_inserted(interrupt_at, make_replay):
    # CX1, CV7: a thread that samples opens the rate limiter.
    table = hr.Table(
        "t",
        sampler=hr.selectors.Fifo(),
        remover=hr.selectors.Fifo(),
        max_size=100,
        max_times_sampled=1,
        rate_limiter=hr.rate_limiters.Queue(30),
    )
    replay = make_replay(SIGNATURE, table)
    within = ("collectors/", "leases/", "tables/", "replay/", "trajectories/")
    with hr.AsyncCollector(lambda: CounterEnv(4), frames_per_batch=40, replay_buffer=replay) as collector:
        collector.start()
        place = ""
        for point in itertools.count():
            if place is None:
                break
            for _ in range(4):  # No rollout can be begun before, so these let one begin.
                place = interrupt_at(point, lambda: replay.sample("t", 30, timeout=20), within=within)
                if place is not None:
                    break
            for _ in range(6):
                replay.sample("t", 30, timeout=20)
        assert point


def test_workers_can_be_paused_again(interrupt_at, make_replay):
    # CF6, CX7: wherever Ctrl-C ends a pause, workers go on, and the next pause is not refused.
    make = {"num_workers": 1, "sync": False, "frames_per_batch": 4, "restart_workers": False}
    replay = make_replay(SIGNATURE, capacity=4000)
    with hr.MultiCollector(lambda: CounterEnv(50), replay_buffer=replay, **make) as collector:
        collector.start()

        def pause():
            with collector.pause():
                pass

        for point in itertools.count():
            place = interrupt_at(point, pause, within=("collectors/multi/pauses",))
            pause()
            if place is None:
                break
    assert point > 20


def test_a_free_run_goes_on_after_a_state(interrupt_at, make_replay):
    # CF5, CQ3, CX7: wherever Ctrl-C ends `state_dict`, workers begin further rollouts.
    make = {"num_workers": 1, "sync": False, "frames_per_batch": 4, "total_frames": 4_000_000}
    replay = make_replay(SIGNATURE, capacity=4000)
    with hr.MultiCollector(lambda: CounterEnv(50), replay_buffer=replay, **make) as collector:
        collector.start()
        group = collector._group
        for point in itertools.count():
            place = interrupt_at(
                point, collector.state_dict, within=("multi/admission", "multi/collected_state")
            )
            frames = group.tally.frames + 40
            group.status.wait(lambda: group.tally.frames >= frames, 40, lambda: f"steps after {place}")  # noqa: B023
            if place is None:
                break
    assert point > 10


def test_all_environments_that_wait_are_known_after_a_reset(interrupt_at):
    # CR7, CX7: workers and collector have counted the same resets.
    make = {"num_workers": 1, "sync": True, "frames_per_batch": 5, "reset_when_done": False}
    with hr.MultiCollector(lambda: CounterEnv(3), **make) as collector:
        for point in itertools.count():
            place = interrupt_at(point, collector.reset, within=("collectors/handle/handle",))
            collector.reset()
            assert collector.next(timeout=40).frames == 3
            with pytest.raises(RuntimeError, match="waits for a reset"):
                collector.next(timeout=40)
            if place is None:
                break
