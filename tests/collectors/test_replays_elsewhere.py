"""A collector writes into a replay of a client, or a wrapper around one, as it does into one of its process (CF1)."""

import os
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.handle.forwarded_rows import ForwardedCalls, ForwardedRows
from headrace.store.memory.arena import Arena
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

LENGTHS = [3, 5, 1, [2, 6]]
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


class Wrapper:
    """A replay that is known by its interface alone."""

    def __init__(self, replay):
        self._replay = replay

    def __getattr__(self, name):
        return getattr(self._replay, name)


def once(**options):
    """A table that gives each item once, the oldest first."""
    fifo = hr.selectors.Fifo()
    return hr.Table("t", sampler=fifo, remover=fifo, max_times_sampled=1, **{"max_size": 100_000, **options})


@pytest.fixture(params=["wrapper", "client"])
def elsewhere(request, tmp_path, make_replay):
    """Makes a replay that is not of this process; there is another handle on it for the learner."""
    opened = []

    def make(**options):
        replay = make_replay(SIGNATURE, once(**options))
        if request.param == "wrapper":
            return Wrapper(replay), replay
        server = hr.Server({"r": replay}, address=None, unix=tmp_path / "socket").start()
        client = hr.Client(server.address)
        opened.extend([client.replay("r"), client, server])
        return opened[-3], replay

    yield make
    for each in opened:
        getattr(each, "stop", getattr(each, "close", None))()


def environments(kind):
    if kind == "single":
        return in_turn(counter_env_fns(LENGTHS)), {"num_envs": 4}
    if kind == "one":
        return in_turn(counter_env_fns([5])), {}
    if kind == "one next_step":
        return lambda: counter_vector_env([5], "next_step"), {}
    return lambda: counter_vector_env(LENGTHS, kind), {}


def items_of(replay):
    """The transitions of all items with their versions, in a fixed order."""
    views = {**hr.views.transition(2, 0.5), "version": hr.View("policy_version")}
    data = replay.sample("t", len(replay.table("t")), views=views, timeout=5).data
    order = np.lexsort(data["observation"].T)
    return {name: column[order] for name, column in data.items()}


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


@pytest.mark.parametrize("kind", ["single", "one", "one next_step", "disabled", "same_step", "next_step"])
@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}, {"init_random_frames": 30}])
def test_the_same_items_as_in_a_replay_of_the_process(elsewhere, make_replay, kind, options):
    # CF2, CR4, CR6
    def collect(replay):
        create, more = environments(kind)
        with hr.Collector(
            create, lambda seen: seen[:, 2] % 4, frames_per_batch=20, replay_buffer=replay, seed=3,
            track_policy_version=True, **options, **more
        ) as collector:  # fmt: skip
            frames = sum(collector.next().frames for _ in range(2))
            collector.reset()
            collector.increment_version()
            return frames + sum(collector.next().frames for _ in range(2))

    local = make_replay(SIGNATURE, once())
    given, remote = elsewhere()
    frames = collect(local)
    assert collect(given) == frames == len(remote.table("t"))
    same(items_of(remote), items_of(local))


def valued(observation):
    return observation[:, 2] % 4, {"value": observation[:, 2] + 1.0}


@pytest.mark.parametrize("workers", [0, 2])
def test_random_rows_have_zeros_for_the_columns_of_the_policy(make_replay, tmp_path, workers):
    # CR4: zeros where the replay's signature has them.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), valued), once())
    options = {"frames_per_batch": 20, "init_random_frames": 30, "num_envs": 2}
    with (
        hr.Server({"r": replay}, address=None, unix=tmp_path / "socket") as server,
        hr.Client(server.address) as client,
    ):
        given = client.replay("r")
        if workers:
            collector = hr.MultiCollector(
                lambda: CounterEnv(3), valued, sync=True, num_workers=workers, replay_buffer=given, **options
            )
        else:
            collector = hr.Collector(lambda: CounterEnv(3), valued, replay_buffer=given, **options)
        with collector:
            for _ in range(4):
                collector.next()
        views = {"value": hr.View(), "version": hr.View("policy_version"), "observation": hr.View()}
        data = replay.sample("t", 80, views=views, timeout=5).data
    is_random = data["version"] < 0
    assert is_random.sum() == 40
    np.testing.assert_array_equal(data["value"], np.where(is_random, 0, data["observation"][:, 2] + 1))


def scaled(batch):
    names = ("observation", "next_observation", "reward")
    return batch.with_columns({name: batch[name] * 10 for name in names})


@pytest.mark.parametrize("postproc", [None, scaled])
def test_free_running(elsewhere, postproc):
    # CF4 to CF7, CR10: a table that is full makes the collector wait; pauses and the end write all there is.
    given, replay = elsewhere(max_size=10, rate_limiter=hr.rate_limiters.Queue(10))
    factor = 1 if postproc is None else 10
    with hr.Collector(
        in_turn(counter_env_fns([7, 7])), frames_per_batch=30, num_envs=2, total_frames=1500,
        replay_buffer=given, postproc=postproc,
    ) as collector:  # fmt: skip
        collector.start()
        seen = []
        while len(seen) < 1500:
            seen += replay.sample("t", 5, timeout=40).data["observation"].tolist()
        assert collector.statistics().frames == 1500
    rows = np.array(sorted(map(tuple, seen))) // factor
    expected = [(copy, step // 7, step % 7) for copy in range(2) for step in range(750)]
    assert [tuple(row) for row in rows.tolist()] == expected


def test_a_failure_begins_new_episodes(elsewhere):
    # CX1: what was not written is dropped, and the next rollout begins with a reset.
    given, replay = elsewhere()
    with hr.Collector(
        lambda: CounterEnv(50), frames_per_batch=10, num_envs=2, replay_buffer=given
    ) as collector:
        collector.next()
        writer = collector._rollouts.output._writer
        append, writer.append_checked = writer.append_checked, None
        with pytest.raises(TypeError):
            collector.next()
        writer.append_checked = append
        collector.next()
        # Of the newest transitions before the failure the next observations are not known.
        assert len(replay.table("t")) == 2 * 4 + 2 * 4
    data = items_of(replay)
    assert sorted(data["observation"][:, 1].tolist()) == [0] * 8 + [1] * 10
    np.testing.assert_array_equal(data["next_observation"][:, 2] - data["observation"][:, 2], data["n"])


# ---- workers ---------------------------------------------------------------------------------------------------------


def worker_environments(kind):
    """One `create_env_fn` for each of two workers, of two copies each."""
    halves = (LENGTHS[:2], LENGTHS[2:])
    if kind == "single":
        return [in_turn(counter_env_fns(half)) for half in halves], {"num_envs": 2}
    return [lambda half=half: counter_vector_env(half, kind) for half in halves], {}


CLIENT = pytest.mark.parametrize("elsewhere", ["client"], indirect=True)


@pytest.mark.parametrize(
    ("elsewhere", "kind"),
    [("wrapper", "single"), ("client", "single"), ("client", "next_step")],
    indirect=["elsewhere"],
)
def test_workers_write_the_same_items_as_a_collector_into_a_replay_of_the_process(
    elsewhere, make_replay, kind
):
    # CF1 to CF3, CQ2, CS5: a batch is handed out when its rows are in the replay.
    given, remote = elsewhere()
    local = make_replay(SIGNATURE, once())

    def policy(seen):
        return seen[:, 2] % 4

    def collect(collector, counted):
        with collector:
            batches = [collector.next(timeout=40)]
            # The newest transitions of open episodes become items when a step or a final row follows.
            assert batches[0].frames - 4 <= len(counted.table("t")) <= batches[0].frames
            collector.reset()
            return batches + [collector.next(timeout=40) for _ in range(2)]

    create, more = environments("single" if kind == "single" else "next_step")
    expected = collect(
        hr.Collector(create, policy, frames_per_batch=20, replay_buffer=local, seed=3, **more), local
    )
    create, more = worker_environments(kind)
    batches = collect(
        hr.MultiCollector(
            create, policy, frames_per_batch=20, sync=True, replay_buffer=given, seed=3, **more
        ),
        remote,
    )
    names = ["action", "reward", "terminated", "t", "mask"]
    for one, other in zip(batches, expected, strict=True):
        same({name: one[name] for name in names}, {name: other[name] for name in names})
    assert len(remote.table("t")) == sum(batch.frames for batch in batches)
    same(comparable(items_of(remote)), comparable(items_of(local)))


def comparable(items):
    """Without the numbers of copies, which each worker counts from 0; in a fixed order."""
    columns = {name: column[..., 1:] if "observation" in name else column for name, column in items.items()}
    flat = np.concatenate([column.reshape(len(column), -1) for column in columns.values()], axis=1)
    order = np.lexsort(flat.T)
    return {name: column[order] for name, column in columns.items()}


def transitions_of(data, count):
    """Checks that each transition of `count` lanes with endless episodes is there once, and none is missing."""
    seen = data["observation"]
    for copy in range(count):
        steps = np.sort(seen[seen[:, 0] == copy][:, 2])
        np.testing.assert_array_equal(steps, np.arange(len(steps)))
    np.testing.assert_array_equal(data["next_observation"] - seen, np.tile([0, 0, 1], (len(seen), 1)))


def endless(worker):
    return in_turn([lambda copy=copy: CounterEnv(10**9, copy=copy) for copy in (2 * worker, 2 * worker + 1)])


@CLIENT
def test_workers_run_freely_through_a_full_table(elsewhere):
    # CF4, CF5, CF7, CV7: the rate limiter holds the workers back.
    given, replay = elsewhere(max_size=40, rate_limiter=hr.rate_limiters.Queue(40))
    with hr.MultiCollector(
        [endless(0), endless(1)], frames_per_batch=20, sync=False, num_envs=2, replay_buffer=given,
        total_frames=400,
    ) as collector:  # fmt: skip
        collector.start()
        parts, taken = [], 0
        while taken < 200:
            parts.append(replay.sample("t", 10, views=hr.views.transition(), timeout=40).data)
            taken += 10
        while taken < 396:
            parts.append(replay.sample("t", 1, views=hr.views.transition(), timeout=40).data)
            taken += 1
        collector.async_shutdown()
    left = 400 - taken
    parts.append(replay.sample("t", left, views=hr.views.transition(), timeout=40).data)
    assert not len(replay.table("t"))
    transitions_of({name: np.concatenate([each[name] for each in parts]) for name in parts[0]}, 4)


@CLIENT
def test_all_that_was_collected_is_stored_in_a_pause(elsewhere):
    # CF6
    given, replay = elsewhere()
    with hr.MultiCollector(
        [endless(0), endless(1)], frames_per_batch=20, sync=False, num_envs=2, replay_buffer=given
    ) as collector:  # fmt: skip
        collector.start()
        for count in range(1, 6):
            replay.sample("t", 30, timeout=40)
            with collector.pause():
                frames, items = collector.statistics().frames, len(replay.table("t"))
                taken = 30 * count
                # The last transition of each lane follows with its next observation.
                assert frames - 4 <= taken + items <= frames
                assert len(replay.table("t")) == items


@CLIENT
def test_a_killed_worker_loses_no_row_of_a_batch(elsewhere):
    # CX3, CX6: its rows were copied; the new process writes into lanes of its own.
    given, replay = elsewhere()
    with hr.AsyncCollector(lambda: CounterEnv(50), frames_per_batch=10, replay_buffer=given) as collector:
        frames = collector.next(timeout=40).frames
        os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
        while not collector.statistics().restarts:
            frames += collector.next(timeout=40).frames
        frames += collector.next(timeout=40).frames
        collector.shutdown()
        assert len(replay.table("t")) >= frames
    data = items_of(replay)
    np.testing.assert_array_equal(data["next_observation"][:, 2] - data["observation"][:, 2], data["n"])


def ask_for_ever(collector):
    while True:
        collector.get_distant_attr("worker_idx")


def test_a_server_that_is_gone_ends_the_collector_with_its_error(tmp_path, make_replay):
    # CF8, CX2
    replay = make_replay(SIGNATURE, once())
    server = hr.Server({"r": replay}, address=None, unix=tmp_path / "socket").start()
    client = hr.Client(server.address)
    collector = hr.AsyncCollector(
        lambda: CounterEnv(50), frames_per_batch=10, replay_buffer=client.replay("r")
    )
    try:
        collector.start()
        replay.sample("t", 1, timeout=40)
        # So long the server is looked for: not while it is there, or a busy one ends the collector before.
        client._session.timeout = 0.5
        for stream in client._session.writers()._streams.values():
            stream._timeout = 0.5
        server.stop()
        with pytest.raises((hr.Disconnected, hr.Closed)):
            ask_for_ever(collector)
    finally:
        collector.shutdown(raise_on_error=False)
        # Steps that were on their way when the server said goodbye are not acknowledged (server CL6).
        with suppress(hr.Disconnected):
            client.close()


class AskedWriter:
    """A writer whose items wait for a rate limiter, and which is given more rows while it counts them."""

    def __init__(self):
        self.asked, self.ended = 0, []
        self.when_asked = lambda: None

    @property
    def pending(self):
        self.asked += 1
        if self.asked == 3:
            self.when_asked()
        return int(self.asked < 4)

    def declare_final_columns(self, columns):
        pass

    def make_room(self, steps):
        pass

    def end_lanes(self, lanes, finals):
        self.ended += lanes.tolist()

    def close(self):
        pass

    abandon = close


def test_rows_that_come_while_items_are_counted_are_sent():
    # CF6, CX6
    store = rollout_store(SIGNATURE, 2, 1, Arena.private_sparse)
    applied = threading.Event()
    writer = AskedWriter()
    calls = ForwardedCalls(lambda: True, lambda: False, lambda: None, applied.set, lambda error: None)
    rows = ForwardedRows(store, 1, writer, calls)
    writer.when_asked = lambda: rows._put(lambda: writer.end_lanes(np.array([0]), {}))
    rows.open(["observation"])
    assert applied.wait(40)
    rows.finish()
    assert writer.ended == [0]
    store.close()


class StuckWriter(AskedWriter):
    """A writer whose replay takes no rows: its call returns when it is let go."""

    pending = 0

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()

    def end_lanes(self, lanes, finals):
        assert self.go_on.wait(40)
        super().end_lanes(lanes, finals)


@pytest.fixture
def stuck(monkeypatch):
    """Rows on their way to a replay that takes none; `is_closed` holds whether their collector is closed."""
    monkeypatch.setattr("headrace.collectors.handle.forwarded_rows._LAST_CALL_SECONDS", 0.0)
    store = rollout_store(SIGNATURE, 2, 1, Arena.private_sparse)
    writer, is_closed = StuckWriter(), threading.Event()
    calls = ForwardedCalls(lambda: True, is_closed.is_set, lambda: None, lambda: None, lambda error: None)
    rows = ForwardedRows(store, 1, writer, calls)
    rows._put(lambda: writer.end_lanes(np.array([0]), {}))
    yield rows, writer, is_closed
    writer.go_on.set()
    rows._thread.join(40)
    store.close()


def test_rows_of_a_worker_that_died_wait_for_the_replay_with_a_word(stuck, monkeypatch, caplog):
    # CX3, CX6: no row is lost while the collector goes on.
    monkeypatch.setattr("headrace.collectors.handle.forwarded_rows._WORD_SECONDS", 0.0)
    rows, writer, _ = stuck
    monkeypatch.setattr(rows._thread, "join", lambda timeout: caplog.records and writer.go_on.set())
    rows.finish()
    assert "rows on their way to the replay" in caplog.text
    assert writer.ended == [0]


def test_a_closed_collector_waits_for_a_stuck_replay_no_longer_than_its_bound(stuck):
    # CQ7: shutdown asked nobody to hurry, because the worker was being started again.
    rows, writer, is_closed = stuck
    is_closed.set()
    with pytest.raises(hr.DeadlineExceeded, match="1 blocks of rows were not stored within"):
        rows.finish()
    assert writer.ended == []
