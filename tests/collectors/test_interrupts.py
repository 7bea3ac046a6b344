"""Ctrl-C in `next`: what is collected after it is whole, and no rollout of a worker is lost."""

import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.collectors.statistics import Tally
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.writing.page_writer import PageWriter
from headrace.testing import CounterEnv, counter_env_fns, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
INLINE = [
    (PageWriter, "report"),
    (LeaseGrantor, "commit"),
    (BlockReader, "copy"),
    (ViewColumns, "present"),
    (PageWriter, "begin_block"),
    (LeaseGrantor, "take_back"),
    (ReplayOutput, "write"),
]


@pytest.fixture
def interrupt(monkeypatch):
    """Raises KeyboardInterrupt in the next call of a function, before or after the function did its work."""

    def interrupt(owner, name, when):
        original = getattr(owner, name)

        def interrupted(*arguments, **options):
            monkeypatch.setattr(owner, name, original)
            if when == "after":
                original(*arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, name, interrupted)

    return interrupt


def check_batches(batches):
    """Every row has what truly followed it, and its index in its episode."""
    for batch in batches:
        seen, following = batch["observation"], batch["next_observation"]
        np.testing.assert_array_equal(following, np.add(seen, [0, 0, 1]))
        np.testing.assert_array_equal(batch["t"], seen[..., 2])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "name"), INLINE)
def test_inline_the_next_call_begins_anew(make_replay, interrupt, take, owner, name, when):
    # CX1: the rollout under way is dropped and counted. The observations after the stored rows are known.
    replay = make_replay(SIGNATURE, capacity=4000)
    with hr.Collector(
        in_turn(counter_env_fns([3, 50])), frames_per_batch=20, num_envs=2, replay_buffer=replay
    ) as collector:
        before = take(collector, 2)
        interrupt(owner, name, when)
        with pytest.raises(KeyboardInterrupt):
            collector.next()
        after = take(collector, 2)
        assert collector.statistics().frames_discarded == 20
    check_batches([*before, *after])
    ids = [set(batch["episode_id"].ravel().tolist()) for batch in (before[-1], after[0])]
    assert not ids[0] & ids[1]
    count = len(replay.table("t"))
    assert count in (80, 100)
    data = replay.sample("t", count, views=hr.views.transition()).data
    assert (data["n"] == 1).all()
    np.testing.assert_array_equal(data["next_observation"], np.add(data["observation"], [0, 0, 1]))


def test_inline_a_rollout_that_is_half_written_makes_no_item_without_its_next_observation(
    make_replay, monkeypatch
):
    replay = make_replay(SIGNATURE, capacity=80)  # A page has 2 rows.
    with hr.Collector(lambda: CounterEnv(50), frames_per_batch=10, replay_buffer=replay) as collector:
        (block,) = collector._rollouts.output._blocks
        write, calls = block.write, []

        def interrupted(*arguments):
            write(*arguments)
            calls.append(arguments)
            if len(calls) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(block, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collector.next()
        collector.next()
    data = replay.sample("t", len(replay.table("t")), views=hr.views.transition()).data
    assert len(data["n"]) == 3 + 10
    assert (data["n"] == 1).all()


def test_a_rollout_of_a_worker_is_handed_out_by_the_next_call(interrupt, take, counters):
    # CV7: nothing is dropped. More interrupts than there are slots, so one that lost its slot would halt the worker.
    lengths = [3, 50]
    with hr.AsyncCollector(in_turn(counter_env_fns(lengths)), frames_per_batch=20, num_envs=2) as collector:
        batches = take(collector, 2)
        for _ in range(3):
            interrupt(Tally, "add", "before")
            with pytest.raises(KeyboardInterrupt):
                collector.next(timeout=40)
            batches += take(collector, 1)
        batches += take(collector, 2)
        assert collector.statistics().frames == 20 * len(batches)
        assert collector.statistics().frames_discarded == 0
    counters(batches, lengths)


def test_with_a_replay_too(make_replay, interrupt, take, counters):
    with hr.AsyncCollector(
        lambda: CounterEnv(50), frames_per_batch=20, replay_buffer=make_replay(SIGNATURE, capacity=4000)
    ) as collector:
        batches = take(collector, 1)
        for _ in range(3):
            interrupt(Tally, "add", "before")
            with pytest.raises(KeyboardInterrupt):
                collector.next(timeout=40)
        batches += take(collector, 3)
    counters(batches, [50])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reset_that_is_interrupted_leaves_the_replay_usable(interrupt, when, make_replay):
    # CX7, CQ2: where the cut of an episode is on its way into the replay.
    replay = make_replay(SIGNATURE)
    with hr.Collector(lambda: CounterEnv(100), frames_per_batch=4, replay_buffer=replay) as collector:
        batches = [collector.next()]
        collector.reset()
        interrupt(LeaseGrantor, "commit", when)
        with pytest.raises(KeyboardInterrupt):
            collector.next()
        batches += [collector.next() for _ in range(2)]
    check_batches(batches)
    data = replay.sample("t", len(replay.table("t")), views=hr.views.transition(), timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], np.add(data["observation"], [0, 0, 1]))
    assert len(replay.table("t")) >= 11  # The newest transition before the interrupt may be missing.
