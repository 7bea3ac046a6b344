"""The end of a collection: no transition is lost, and no last observation is invented."""

import os
import signal
import sys
import time

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LENGTHS = [3, 5, 50, [2, 6]]
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
COLLECTORS = [hr.Collector, hr.AsyncCollector]
KINDS = ["single", "one", "one next_step", "disabled", "same_step", "next_step"]


def environments(kind):
    """`create_env_fn`, its options, and the lengths of the episodes of each copy."""
    if kind == "single":
        return in_turn(counter_env_fns(LENGTHS)), {"num_envs": 4}, LENGTHS
    if kind == "one":
        return in_turn(counter_env_fns([50])), {}, [50]
    if kind == "one next_step":
        return lambda: counter_vector_env([5], "next_step"), {}, [5]
    return lambda: counter_vector_env(LENGTHS, kind), {}, LENGTHS


@pytest.fixture
def replay(make_replay):
    # A sample as large as the table shows every item once.
    return make_replay(SIGNATURE, table(hr.selectors.Uniform(replacement=False)), capacity=400_000)


def table(sampler, **options):
    return hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=100_000, **options)


def all_items(replay, n_step=1):
    """Returns the transition view of every item, in the order of copies, episodes and steps."""
    count = len(replay.table("t"))
    data = replay.sample("t", count, views=hr.views.transition(n_step=n_step), timeout=5).data
    order = np.lexsort(data["observation"].T[::-1])
    return {name: column[order] for name, column in data.items()}


def collect_all(collector):
    """Reach `total_frames`, by iteration or, with `start`, freely."""
    if isinstance(collector, hr.Collector):
        return sum(batch.frames for batch in collector)
    collector.start()
    with collector._group.status.changed:
        assert collector._group.status.changed.wait_for(lambda: not collector.statistics().running, 40)
    return collector.statistics().frames


def check_items(replay, frames, n_step=1, lengths=LENGTHS):
    """Every frame is an item whose views see what truly followed, up to the end of its episode."""
    assert len(replay.table("t")) == frames
    data = all_items(replay, n_step)
    seen, n = data["observation"], data["n"]
    assert len(np.unique(seen, axis=0)) == frames
    np.testing.assert_array_equal(data["next_observation"], seen + np.multiply.outer(n, [0, 0, 1]))
    newest = {(copy, episode): step for copy, episode, step in seen.tolist()}
    left = [newest[copy, episode] + 1 - step for copy, episode, step in seen.tolist()]
    np.testing.assert_array_equal(n, np.minimum(n_step, left))
    # The trajectories that the end of the collection cut carry no flag.
    own = [np.atleast_1d(lengths[copy])[episode % np.size(lengths[copy])] for copy, episode, _ in seen]
    np.testing.assert_array_equal(data["terminated"], seen[:, 2] + n == own)
    assert not data["truncated"].any()


def nothing_is_held_but_items(replay):
    replay.reset("t")
    assert replay.statistics().store.pages == 0


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_total_frames(replay, collector_type, kind, n_step):
    # CF2, CF5: the last transitions are items as soon as the collection has ended, without shutdown.
    create, options, lengths = environments(kind)
    rule = hr.ItemRule("t", 1, lookahead=n_step)
    with collector_type(
        create, frames_per_batch=40, total_frames=80, replay_buffer=replay, items=[rule], **options
    ) as collector:
        frames = collect_all(collector)
        assert frames >= 80
        check_items(replay, frames, n_step, lengths)
    check_items(replay, frames, n_step, lengths)
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_the_last_batch(replay, collector_type, kind):
    # As soon as it is handed out: nothing more has to be called.
    create, options, lengths = environments(kind)
    rule = hr.ItemRule("t", 1, lookahead=3)
    with collector_type(
        create, frames_per_batch=40, total_frames=40, replay_buffer=replay, items=[rule], **options
    ) as collector:
        frames = 0
        while frames < 40:
            frames += collector.next(timeout=40).frames
        check_items(replay, frames, 3, lengths)
        assert collector.next(timeout=40) is None
    check_items(replay, frames, 3, lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_an_inline_collector(replay, take, kind):
    create, options, lengths = environments(kind)
    rule = hr.ItemRule("t", 1, lookahead=3)
    with hr.Collector(
        create, frames_per_batch=40, replay_buffer=replay, items=[rule], **options
    ) as collector:
        frames = sum(batch.frames for batch in take(collector, 2))
    check_items(replay, frames, 3, lengths)
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("end", ["shutdown", "async_shutdown", "leave"])
@pytest.mark.parametrize("kind", KINDS)
def test_stopping_a_worker(replay, kind, end):
    # CF7: what was collected is in the replay, the newest transitions too.
    create, options, lengths = environments(kind)
    rule = hr.ItemRule("t", 1, lookahead=3)
    with hr.AsyncCollector(
        create, frames_per_batch=40, replay_buffer=replay, items=[rule], **options
    ) as collector:
        collector.start()
        replay.sample("t", 100, timeout=40)
        if end != "leave":
            getattr(collector, end)()
            check_items(replay, collector.statistics().frames, 3, lengths)
    check_items(replay, collector.statistics().frames, 3, lengths)
    nothing_is_held_but_items(replay)


def test_rollouts_that_were_not_handed_out(replay, take):
    # They are in the replay: their last transitions as well.
    create, options, lengths = environments("single")
    with hr.AsyncCollector(
        create, frames_per_batch=40, replay_buffer=replay, items=[hr.ItemRule("t", 1, lookahead=3)], **options
    ) as collector:
        take(collector, 1)
    check_items(replay, len(replay.table("t")), 3, lengths)
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_rows_without_a_look_ahead_see_what_followed(replay, collector_type):
    create, options, lengths = environments("single")
    with collector_type(
        create,
        frames_per_batch=40,
        total_frames=40,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1)],
        **options,
    ) as collector:
        collect_all(collector)
    check_items(replay, 40, 1, lengths)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_set_seed_just_before_the_end(replay, take, collector_type):
    # Trajectories that were cut already get no second final row.
    with collector_type(
        lambda: CounterEnv(50),
        frames_per_batch=10,
        num_envs=2,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    ) as collector:
        take(collector, 1)
        collector.set_seed(3)
        take(collector, 3)
        collector.set_seed(4)
    assert len(replay.table("t")) >= 40
    data = all_items(replay)
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    nothing_is_held_but_items(replay)


def test_a_failure_in_the_middle_invents_nothing(replay):
    # CX1: the rollout is dropped; what followed the rows that are stored was seen before.
    class Failing(CounterEnv):
        steps = 0

        def step(self, action):
            type(self).steps += 1
            if self.steps == 27:
                raise ZeroDivisionError("by intent")
            return super().step(action)

    with hr.Collector(
        lambda: Failing(50),
        frames_per_batch=10,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=3)],
    ) as collector:
        with pytest.raises(ZeroDivisionError):
            list(zip(range(5), collector, strict=False))
    check_items(replay, 20, 3, [50])


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_dead_worker_invents_nothing(replay, how):
    # CX2, CX6: only complete steps are in the replay, each with what the environment returned after it.
    class Failing(CounterEnv):
        steps = 0

        def step(self, action):
            observation, *rest = super().step(action)
            self.steps += 1
            if self.steps == 27:
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ZeroDivisionError("by intent")
            return observation, *rest

    with hr.AsyncCollector(
        lambda: Failing(50),
        frames_per_batch=10,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=3)],
        restart_workers=False,
    ) as collector:
        collector.start()
        with pytest.raises(hr.WorkerDied):
            replay.sample("t", 1000, timeout=40)
        collector.shutdown(raise_on_error=False)
    check_items(replay, 20, 3, [50])
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_closed_gate_does_not_hold_up_the_end(make_replay, collector_type):
    # Replay I4: items that wait for a rate limiter stay queued; the final rows are there when they go in.
    replay = make_replay(
        SIGNATURE,
        table(hr.selectors.Fifo(), max_times_sampled=1, rate_limiter=hr.rate_limiters.Queue(5)),
    )
    with collector_type(
        lambda: CounterEnv(50),
        frames_per_batch=10,
        total_frames=10,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=3)],
    ) as collector:
        collect_all(collector)
    seen = []
    while replay.can_sample("t"):
        seen.append(replay.sample("t", 1, views=hr.views.transition(n_step=3), timeout=5).data)
    assert [int(data["observation"][0, 2]) for data in seen] == list(range(10))
    assert [int(data["n"][0]) for data in seen] == [3] * 8 + [2, 1]


@pytest.mark.parametrize("leave", ["shutdown", "exception", "last batch"])
def test_no_room_for_the_final_rows(replay, leave, caplog):
    # StoreFull is told after everything is released, and replaces no exception of the user's.
    collector = hr.Collector(
        in_turn(counter_env_fns([50, 50])),
        frames_per_batch=10,
        num_envs=2,
        total_frames=10 if leave == "last batch" else -1,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    )
    (block,) = collector._rollouts.output._blocks
    cut, full = block.cut, [True]

    def refuse(is_open, following):
        if full and is_open.any():
            raise hr.StoreFull("no page is free")
        cut(is_open, following)

    block.cut = refuse
    if leave == "exception":
        with pytest.raises(KeyError), collector:  # noqa: PT012 - left by the last line
            collector.next()
            raise KeyError("mine")
        assert "final rows" in caplog.text
    elif leave == "shutdown":
        collector.next()
        with pytest.raises(hr.StoreFull):
            collector.shutdown()
    else:
        assert collector.next().frames == 10
        with pytest.raises(hr.StoreFull):
            collector.next()
        assert len(replay.table("t")) == 8
        full.clear()
        assert collector.next() is None
        assert len(replay.table("t")) == 10
        collector.shutdown()
    with pytest.raises(hr.Closed):
        collector.next()
    nothing_is_held_but_items(replay)


def test_stopping_a_worker_that_waits_for_room(make_replay, tmp_path):
    # CF7: steps in a page that was not reported yet are not lost because no further page can be had.
    path = tmp_path / "steps"

    class Noting(CounterEnv):
        def step(self, action):
            with path.open("a") as file:
                file.write(".")
            return super().step(action)

        def close(self):
            time.sleep(0.3)  # Longer than the collector waits for room before it looks again.

    replay = make_replay(SIGNATURE, table(hr.selectors.Fifo(), max_times_sampled=1), capacity=100)
    with hr.AsyncCollector(
        lambda: Noting(10_000),
        frames_per_batch=1000,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    ) as collector:
        rows = collector._group.handles[0].peer.rows
        collector.start()
        end = time.monotonic() + 20
        while not rows.owes_pages:
            assert time.monotonic() < end
        committed = rows._grantor._block.kernel.committed
        while path.stat().st_size == committed:  # The worker goes on in the page ahead.
            assert time.monotonic() < end
    assert path.stat().st_size > committed
    assert len(replay.table("t")) == path.stat().st_size


@pytest.mark.parametrize("stays_full", [False, True])
@pytest.mark.parametrize("iterated", [False, True])
def test_a_worker_has_no_room_for_the_final_rows(replay, stays_full, iterated):
    # The last batch is handed out, and the run ends; shutdown tries again.
    collector = hr.AsyncCollector(
        in_turn(counter_env_fns([50, 50])),
        frames_per_batch=10,
        num_envs=2,
        total_frames=10,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    )
    rows, full = collector._group.handles[0].peer.rows, [True]
    end_episodes = rows.end_episodes

    def refuse():
        if full:
            raise hr.StoreFull("no page is free")
        end_episodes()

    rows.end_episodes = refuse
    if iterated:
        assert sum(batch.frames for batch in collector) == 10
    else:
        collect_all(collector)
    assert len(replay.table("t")) == 8
    if stays_full:
        with pytest.raises(hr.StoreFull):
            collector.shutdown()
    else:
        full.clear()
        collector.shutdown()
        check_items(replay, 10, 1, [50, 50])
    nothing_is_held_but_items(replay)
