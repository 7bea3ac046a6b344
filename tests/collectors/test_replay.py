"""Rows and items that collectors write into a replay."""

import contextlib
import sys
import threading
import time

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.messages import Paused
from headrace.leases.frames import Frame
from headrace.replay.public import core_of
from headrace.store.layout import FINAL, LANES, LINKED, STEP_MASK, USED
from headrace.testing import CounterEnv, counter_env_fns, counter_transitions, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LENGTHS = [3, 5, 1, [2, 6]]
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


def once(name="t", max_size=100_000, **options):
    """A table that gives each item once, the oldest first."""
    return hr.Table(
        name,
        sampler=hr.selectors.Fifo(),
        remover=hr.selectors.Fifo(),
        max_size=max_size,
        max_times_sampled=1,
        **options,
    )


def environments(kind):
    """`create_env_fn` and its options for four copies."""
    if kind == "single":
        return in_turn(counter_env_fns(LENGTHS)), {"num_envs": 4}
    if kind == "one":
        return in_turn(counter_env_fns([5])), {}
    if kind == "one next_step":
        return lambda: counter_vector_env([5], "next_step"), {}
    return lambda: counter_vector_env(LENGTHS, kind), {}


def all_items(replay, views=None):
    """Data of every item of table "t", the oldest first; they are gone then."""
    return replay.sample("t", len(replay.table("t")), views=views, timeout=5).data


def check_transitions(data, lengths, limit=None):
    """Each transition that a copy made is there exactly once, and is what the closed form says."""
    seen = data["observation"]
    for copy, length in enumerate(lengths):
        mine = seen[:, 0] == copy
        one_copy = {name: column[mine] for name, column in data.items()}
        order = np.lexsort((one_copy["observation"][:, 2], one_copy["observation"][:, 1]))
        count = int(mine.sum())
        short = [min(one, limit or one) for one in np.atleast_1d(length).tolist()]
        known = counter_transitions(short, count)
        expected = np.stack([np.full(count, copy), known["episode"], known["step"]], axis=1)
        np.testing.assert_array_equal(one_copy["observation"][order], expected)
        own = np.atleast_1d(length)[known["episode"] % np.size(length)]
        np.testing.assert_array_equal(one_copy["terminated"][order], known["step"] + 1 == own)
        cut = known["last"] & (known["step"] + 1 == limit)
        np.testing.assert_array_equal(one_copy["truncated"][order], cut)
        np.testing.assert_array_equal(
            one_copy["reward"][order], 4 * known["step"] + one_copy["action"][order]
        )
        if "next_observation" in data:
            np.testing.assert_array_equal(one_copy["next_observation"][order], np.add(expected, [0, 0, 1]))


def stored_rows(replay):
    """Every committed row: words, versions, columns."""
    store, arrays = core_of(replay).store, core_of(replay).store.arrays
    rows, versions = [], []
    for page in np.flatnonzero(arrays.pages[:, USED]):
        first = page * arrays.page_rows
        used, lanes = (int(arrays.pages[page, word]) for word in (USED, LANES))
        rows.append(first + np.arange(used * lanes))
        versions.append(np.repeat(store.versions[first : first + used], lanes))
    rows = np.concatenate(rows)
    words = arrays.steps[rows].astype(np.int64)
    return words, np.concatenate(versions), {name: store.columns[name][rows] for name in store.columns}


def nothing_is_held_but_items(replay):
    """When the items go, so do all pages."""
    for name in replay.table_names:
        replay.reset(name)
    assert replay.statistics().store.pages == 0
    assert replay.statistics().store.rows == 0


def wait_for(collector, there):
    """Wait until something is so that the worker's reports can change."""
    with collector._group.status.changed:
        assert collector._group.status.changed.wait_for(lambda: there(collector.statistics()), 40)


def wait_for_full_store(collector):
    """Wait until there are items, and the worker is owed a page."""
    end, table = time.monotonic() + 20, collector.replay_buffer.table("t")
    while not (len(table) and collector._group.handles[0].peer.rows.owes_pages):
        assert time.monotonic() < end
        time.sleep(0.001)


def run_to_end(collector):
    """Start, and wait for the end that `total_frames` sets."""
    collector.start()
    wait_for(collector, lambda statistics: not statistics.running)


KINDS = ["single", "one", "one next_step", "disabled", "same_step", "next_step"]


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", [hr.ItemRule("t", 1), hr.ItemRule("t", 1, lookahead=1)])
def test_inline(make_replay, take, kind, limit, rule):
    # CF2: one item a transition, none for a final or masked row. All next observations are there.
    create, options = environments(kind)
    lengths = [5] if kind.startswith("one") else LENGTHS
    replay = make_replay(SIGNATURE, once(), capacity=4000)
    with hr.Collector(
        create, frames_per_batch=20, replay_buffer=replay, items=[rule], max_frames_per_traj=limit, **options
    ) as collector:
        batches = take(collector, 9)
    frames = sum(batch.frames for batch in batches)
    # CF2, CF7: leaving has cut the trajectories under way, so the last transitions are there too.
    assert len(replay.table("t")) == frames
    views = hr.views.transition()
    check_transitions(all_items(replay, views), lengths, limit)
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("kind", ["single", "one", "same_step", "next_step"])
def test_free_running(make_replay, kind):
    # CF4, CF5, CF2: ends by itself; many pages, many more rows than the store could hold at once.
    create, options = environments(kind)
    lengths = [5] if kind == "one" else LENGTHS
    table = once(max_size=600)
    replay = make_replay(SIGNATURE, table, capacity=2500)
    with hr.AsyncCollector(
        create,
        frames_per_batch=100,
        total_frames=4000,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
        max_frames_per_traj=4 if kind != "next_step" else None,
        **options,
    ) as collector:
        run_to_end(collector)
        statistics = collector.statistics()
        assert statistics.frames >= 4000
        assert statistics.batches >= 40
        assert statistics.episodes > 100
    assert len(replay.table("t")) == 600
    data = all_items(replay, hr.views.transition())
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    np.testing.assert_array_equal(data["reward"], 4 * data["observation"][:, 2] + data["action"])
    own = np.array([np.atleast_1d(lengths[copy])[episode % np.size(lengths[copy])]
                    for copy, episode, _ in data["observation"]])  # fmt: skip
    np.testing.assert_array_equal(data["terminated"], data["observation"][:, 2] + 1 == own)
    assert len(np.unique(data["observation"], axis=0)) == 600  # No transition twice.
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_default_items_wait_for_their_next_observation(make_replay, take, kind):
    # CF2: in each table; a transition that can be sampled can be learned from.
    replay = make_replay(SIGNATURE, [once(), once("other")])
    with kind(lambda: CounterEnv(50), frames_per_batch=20, num_envs=2, replay_buffer=replay) as collector:
        take(collector, 1)
        for name in replay.table_names:
            count = len(replay.table(name))
            assert count >= 18
            data = replay.sample(name, count, views=hr.views.transition(), timeout=5).data
            assert (data["n"] == 1).all()
            np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_every_transition_of_a_free_run_is_an_item(make_replay, kind):
    create, options = environments(kind)
    replay = make_replay(SIGNATURE, once())
    with hr.AsyncCollector(
        create, frames_per_batch=20, total_frames=200, replay_buffer=replay, **options
    ) as collector:
        run_to_end(collector)
        frames = collector.statistics().frames
    assert len(replay.table("t")) == frames
    check_transitions(all_items(replay), [5] if kind.startswith("one") else LENGTHS)
    nothing_is_held_but_items(replay)


def test_final_rows(make_replay):
    # Design section 3: an episode of T transitions has T + 1 rows; the last one holds the observation and zeros.
    replay = make_replay(SIGNATURE, once())
    with hr.AsyncCollector(
        environments("next_step")[0], frames_per_batch=40, total_frames=400, replay_buffer=replay
    ) as collector:
        run_to_end(collector)
        episodes = collector.statistics().episodes
    words, _, columns = stored_rows(replay)
    final = (words & FINAL) != 0
    # They stand in the lanes, but for those that the end of the collection added: at most one a lane.
    linked = (words & LINKED) != 0
    cut = int(linked.sum() - columns["terminated"][linked].sum())
    assert 0 < linked.sum() <= 4
    assert final.sum() == episodes + cut
    for name in ("action", "reward", "terminated", "truncated"):
        assert not columns[name][final].any()
    np.testing.assert_array_equal(words[final] & STEP_MASK, columns["observation"][final][:, 2])
    np.testing.assert_array_equal(words & STEP_MASK, columns["observation"][:, 2])


@pytest.mark.parametrize("kind", ["single", "one", "same_step", "next_step"])
def test_iterating_with_a_replay(make_replay, counters, take, kind):
    # CF3: the batch is of the same rows as the items.
    create, options = environments(kind)
    lengths = [5] if kind == "one" else LENGTHS
    replay = make_replay(SIGNATURE, once(), capacity=8000)
    with hr.AsyncCollector(
        create,
        frames_per_batch=36,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
        **options,
    ) as collector:
        batches = take(collector, 25)
        counters(batches, lengths)
        assert all(batch.worker_idx == 0 for batch in batches)
        with pytest.raises(RuntimeError):
            collector.start()
    data = all_items(replay, hr.views.transition())
    check_transitions(data, lengths)
    assert len(data["reward"]) >= sum(batch.frames for batch in batches) - 2 * len(lengths)
    nothing_is_held_but_items(replay)


def test_a_batch_outlives_its_items(make_replay, counters, take):
    # A table far smaller than a batch: the rows are held until the batch is copied out.
    replay = make_replay(SIGNATURE, once(max_size=5), capacity=6000)
    create, options = environments("single")
    with hr.AsyncCollector(create, frames_per_batch=2000, replay_buffer=replay, **options) as collector:
        counters(take(collector, 4), LENGTHS)
    nothing_is_held_but_items(replay)


def test_batches_with_a_replay_are_those_without(make_replay, take):
    # CF3, CS5: inline and from a worker.
    found = []
    for kind in (hr.Collector, hr.AsyncCollector):
        for replay in (None, make_replay(hr.collectors.signature("CartPole-v1"))):
            with kind(
                "CartPole-v1",
                frames_per_batch=90,
                num_envs=3,
                seed=1,
                max_frames_per_traj=20,
                replay_buffer=replay,
            ) as collector:
                found.append(take(collector, 4))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert list(one) == list(two)
            for name in one:
                assert one[name].tobytes() == two[name].tobytes(), name


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_other_rules(make_replay, kind, take):
    # CF2: several tables, longer windows, padding at the end of an episode.
    tables = [once(), once("long")]
    replay = make_replay(SIGNATURE, tables)
    items = [hr.ItemRule("t", 2), hr.ItemRule("long", 4, stride=4, end=hr.EndOfEpisode.PAD)]
    with kind(
        lambda: CounterEnv(5), frames_per_batch=10, replay_buffer=replay, items=items, total_frames=40
    ) as collector:
        if kind is hr.Collector:
            take(collector, 4)
        else:
            run_to_end(collector)
    # 8 whole episodes of 5 transitions and a final row.
    assert len(replay.table("t")) == 8 * 5
    assert len(replay.table("long")) == 8 * 2
    pairs = all_items(replay)["observation"]
    np.testing.assert_array_equal(pairs[:, 1], pairs[:, 0] + [0, 0, 1])
    windows = replay.sample("long", 16, timeout=5)
    assert sorted(windows.mask.sum(1).tolist()) == [2] * 8 + [4] * 8
    nothing_is_held_but_items(replay)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_windows_over_the_ends_of_episodes(make_replay, kind, take):
    # A10: also over the pages that a worker fills. Rows of a stream: transitions and final rows, as they were written.
    replay = make_replay(SIGNATURE, once(), capacity=400)  # A page has 12 rows.
    items = [hr.ItemRule("t", 4, end=hr.EndOfEpisode.CONTINUE)]
    with kind(
        lambda: CounterEnv(5), frames_per_batch=10, replay_buffer=replay, items=items, total_frames=40
    ) as collector:
        if kind is hr.Collector:
            take(collector, 4)
        else:
            run_to_end(collector)
    seen = all_items(replay)["observation"][..., 1:]
    rows = [(episode, step) for episode in range(8) for step in range(6)]
    assert seen.tolist() == [[list(row) for row in rows[n : n + 4]] for n in range(len(rows) - 3)]


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_extras_are_zero_while_actions_are_random(make_replay, kind, take):
    # CR4, CF1; and a replay need not hold the extras.
    def policy(observation):
        return np.full(len(observation), 1), {"value": 1.0 + observation[:, 2]}

    with_value = hr.collectors.signature(lambda: CounterEnv(4), policy)
    for signature in (with_value, SIGNATURE):
        replay = make_replay(signature, once())
        # Extras without a place are told: inline by a warning at the first step that has some.
        told = kind is hr.Collector and signature is SIGNATURE
        warns = pytest.warns(UserWarning, match="value") if told else contextlib.nullcontext()
        with (
            warns,
            kind(
                lambda: CounterEnv(4),
                policy,
                frames_per_batch=8,
                total_frames=24,
                init_random_frames=9,
                replay_buffer=replay,
            ) as collector,
        ):
            if kind is hr.Collector:
                take(collector, 3)
            else:
                run_to_end(collector)
        _, versions, columns = stored_rows(replay)
        data = all_items(replay)
        assert len(data["reward"]) == 24
        acted = np.arange(24) >= 16
        assert (data["action"][acted] == 1).all()
        if signature is with_value:
            np.testing.assert_array_equal(data["value"], np.where(acted, 1.0 + data["observation"][:, 2], 0))
        # CV2: the stamps in the rows.
        seen = columns["observation"]
        stamps = {tuple(row[1:]): version for row, version in zip(seen, versions, strict=True)}
        for g in range(24):
            assert stamps[g // 4, g % 4] == (0 if acted[g] else -1)


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_set_seed_cuts_without_a_flag(make_replay, kind, take):
    # CS2: new ids, no flags; what followed is not lost, and windows end there.
    replay = make_replay(SIGNATURE, once())
    with kind(
        lambda: CounterEnv(50),
        frames_per_batch=10,
        num_envs=2,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    ) as collector:
        first = take(collector, 2)
        collector.set_seed(3)
        later = take(collector, 6)
        batches = first + later
    flags = np.concatenate([batch["terminated"] | batch["truncated"] for batch in batches], axis=1)
    steps = np.concatenate([batch["t"] for batch in batches], axis=1)
    ids = np.concatenate([batch["episode_id"] for batch in batches], axis=1)
    seen = np.concatenate([batch["observation"] for batch in batches], axis=1)
    following = np.concatenate([batch["next_observation"] for batch in batches], axis=1)
    assert not flags.any()
    np.testing.assert_array_equal(following, np.add(seen, [0, 0, 1]))  # Never what the reset showed.
    np.testing.assert_array_equal(steps, seen[..., 2])
    begins = steps == 0
    assert begins.sum(axis=1).tolist() == [2, 2]
    np.testing.assert_array_equal(np.cumsum(begins, axis=1) - 1, seen[..., 1])
    np.testing.assert_array_equal(ids, 2 * seen[..., 1] + [[0], [1]])
    data = all_items(replay, hr.views.transition())
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    cut = int(np.flatnonzero(begins[0])[1])
    assert ((data["observation"][:, 1] == 0).sum()) == 2 * cut  # The last one before the cut too.
    nothing_is_held_but_items(replay)


def test_set_seed_without_a_replay_keeps_what_followed(take):
    with hr.AsyncCollector(lambda: CounterEnv(50), frames_per_batch=10, num_envs=2) as collector:
        batches = take(collector, 2)
        collector.set_seed(3)
        batches += take(collector, 6)
    seen = np.concatenate([batch["observation"] for batch in batches], axis=1)
    following = np.concatenate([batch["next_observation"] for batch in batches], axis=1)
    np.testing.assert_array_equal(following, np.add(seen, [0, 0, 1]))
    assert seen[..., 1].max() == 1


@pytest.mark.parametrize("iterated", [False, True])
def test_a_closed_gate_stops_the_worker(make_replay, iterated):
    # CV7, CF4: two rollouts wait at most; it goes on when the gate opens.
    table = once(rate_limiter=hr.rate_limiters.Queue(30))
    replay = make_replay(SIGNATURE, table)
    with hr.AsyncCollector(lambda: CounterEnv(4), frames_per_batch=40, replay_buffer=replay) as collector:
        if iterated:
            collector.next(timeout=40)
            collector.next(timeout=40)
            with pytest.raises(hr.DeadlineExceeded):
                collector.next(timeout=0.3)
        else:
            collector.start()
            # The first rollout fits in part: no third one is begun.
            wait_for(collector, lambda statistics: statistics.frames == 80)
        assert replay.table("t").statistics().pending_inserts == 50
        for _ in range(3 if iterated else 10):
            replay.sample("t", 30, timeout=40)
        if iterated:
            assert collector.next(timeout=40).frames == 40
        else:
            assert collector.statistics().frames >= 300 - 40
            assert collector.statistics().running
    # Items that had not gone in still wait in their table (replay I4).
    seen = []
    while replay.can_sample("t"):
        seen.append(int(replay.sample("t", 1, timeout=0).data["observation"][0, 1]))
    assert seen == sorted(seen)


def test_pause(make_replay):
    # CF6.
    replay = make_replay(SIGNATURE, once())
    create, options = environments("single")
    items = [hr.ItemRule("t", 1)]  # Every step that is stored counts at once.
    with hr.AsyncCollector(
        create, frames_per_batch=100, replay_buffer=replay, items=items, **options
    ) as collector:
        with pytest.raises(RuntimeError, match="pause"), collector.pause():
            pass
        collector.start()
        replay.sample("t", 50, timeout=40)
        for _ in range(3):
            with pytest.raises(KeyError, match="mine"), collector.pause():  # noqa: PT012 - left by the last line
                assert collector.statistics().paused
                inserts = replay.table("t").statistics().inserts
                assert collector.statistics().frames == inserts
                with pytest.raises(RuntimeError), collector.pause():
                    pass
                with pytest.raises(hr.DeadlineExceeded):
                    replay.sample("t", 100_000, timeout=0.05)
                assert replay.table("t").statistics().inserts == inserts
                raise KeyError("mine")
            assert not collector.statistics().paused
            with core_of(replay).lock:
                live = core_of(replay).live_table("t")
            replay.sample("t", len(replay.table("t")) + 10, timeout=40)
            assert live.inserts > inserts
        collector.async_shutdown()
        frames = collector.statistics().frames
        assert replay.table("t").statistics().inserts == frames  # CF7
    seen = stored_rows(replay)[2]["observation"]
    assert len(np.unique(seen, axis=0)) == len(seen)


def test_pause_while_the_gate_is_closed(make_replay):
    replay = make_replay(SIGNATURE, once(rate_limiter=hr.rate_limiters.Queue(5)))
    with hr.AsyncCollector(lambda: CounterEnv(4), frames_per_batch=10, replay_buffer=replay) as collector:
        collector.start()
        wait_for(collector, lambda statistics: statistics.frames == 20)
        with collector.pause():
            assert collector.statistics().frames == 20


@pytest.mark.parametrize("length", [1, 3, 10_000])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_pause_while_the_store_is_full(make_replay, num_envs, length):
    # CF6, CF4: a worker that waits for a page stands between two steps, also where it needs one for final rows.
    replay = make_replay(SIGNATURE, once(), capacity=100)  # A page has 3 rows.
    with hr.AsyncCollector(
        in_turn(counter_env_fns([length] * num_envs)),
        num_envs=num_envs,
        frames_per_batch=30 * num_envs,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 1, lookahead=1)],
    ) as collector:
        collector.start()
        taken = []
        for _ in range(4):
            wait_for_full_store(collector)
            with collector.pause():
                frames, inserts = collector.statistics().frames, replay.table("t").statistics().inserts
                # Of each copy the newest may wait for its next observation.
                assert 0 <= frames - inserts <= num_envs
                taken.append(all_items(replay, hr.views.transition()))
                assert collector.statistics().frames == frames
        wait_for_full_store(collector)
        collector.async_shutdown()
    taken.append(all_items(replay, hr.views.transition()))
    data = {name: np.concatenate([each[name] for each in taken]) for name in taken[0]}
    check_transitions(data, [length] * num_envs)
    nothing_is_held_but_items(replay)


def test_start_is_called_once(make_replay):
    # CF4.
    with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5) as collector:
        with pytest.raises(RuntimeError, match="replay_buffer"):
            collector.start()
    replay = make_replay(SIGNATURE)
    with hr.AsyncCollector(
        lambda: CounterEnv(3), frames_per_batch=5, total_frames=10, replay_buffer=replay
    ) as collector:
        run_to_end(collector)
        with pytest.raises(RuntimeError, match="already"):
            collector.start()
        with pytest.raises(RuntimeError, match="start"):
            collector.next()


def test_a_full_store(make_replay, take):
    # Neither hangs: inline it is raised and can be tried again, from a worker the next call and waits raise it.
    replay = make_replay(SIGNATURE, capacity=100)
    with hr.Collector(lambda: CounterEnv(4), frames_per_batch=40, replay_buffer=replay) as collector:
        with pytest.raises(hr.StoreFull):
            take(collector, 10)
        inserts = replay.table("t").statistics().inserts
        replay.reset("t")
        assert take(collector, 1)[0]["t"][0, 0] == 0
        assert 0 < collector.statistics().frames_discarded <= 40
        assert inserts <= 200
    replay.reset("t")
    replay.table("t").configure(rate_limiter=hr.rate_limiters.MinSize(5000))
    for iterated in (False, True):
        with hr.AsyncCollector(lambda: CounterEnv(4), frames_per_batch=40, replay_buffer=replay) as collector:
            with pytest.raises(hr.StoreFull):  # noqa: PT012 - the last call raises
                if iterated:
                    take(collector, 10)
                else:
                    collector.start()
                    replay.sample("t", 1, timeout=40)
            with pytest.raises(hr.StoreFull):
                collector.update_policy_weights_({})
        nothing_is_held_but_items(replay)


def test_many_lanes_for_small_pages(make_replay):
    replay = make_replay(SIGNATURE, once(), capacity=100)  # A page has 3 rows.
    with pytest.raises(ValueError, match="capacity"):
        hr.AsyncCollector(lambda: CounterEnv(4), num_envs=4, frames_per_batch=40, replay_buffer=replay)
    with hr.AsyncCollector(
        lambda: CounterEnv(1), num_envs=3, frames_per_batch=30, total_frames=30, replay_buffer=replay
    ) as collector:
        run_to_end(collector)
    assert len(replay.table("t")) == 30
    nothing_is_held_but_items(replay)


def test_two_collectors_fill_one_replay(make_replay):
    replay = make_replay(SIGNATURE, once())
    made = [
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=30, total_frames=300, replay_buffer=replay)
        for _ in range(2)
    ]
    threads = [threading.Thread(target=run_to_end, args=(collector,)) for collector in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for collector in made:
        collector.shutdown()
    data = all_items(replay)
    assert len(data["reward"]) == 600
    unique, counts = np.unique(data["observation"], axis=0, return_counts=True)
    assert len(unique) == 300
    assert (counts == 2).all()
    nothing_is_held_but_items(replay)


def test_a_pause_that_was_given_up_is_not_noted_later(make_replay):
    # CF6: the worker may answer at the moment at which the wait for it ends; no page would be leased after that.
    replay = make_replay(SIGNATURE)
    with hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=5, replay_buffer=replay) as collector:
        collector.start()
        with collector.pause():
            assert collector.statistics().paused
        collector._group.handles[0].peer._take(Frame(Paused(number=0), b"", []))
        assert not collector.statistics().paused
