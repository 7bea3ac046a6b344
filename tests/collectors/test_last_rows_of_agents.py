"""`set_truncated` with several agents: the last transition of each in a rollout (collectors CR8)."""

import itertools
import pickle
import sys
from functools import partial

import agents_model
import cloudpickle
import numpy as np
import pytest
import scripted_agents
from agents_model import (
    FIVE,
    Event,
    Model,
    Script,
    check_ids,
    check_items,
    check_rows,
    draw_resets,
    environment,
    environments,
    known_columns,
    options_of_resets,
    replay_of_items,
    sets_of_scripts,
    step_by_step,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import by_time

import headrace as hr
from headrace.testing import in_turn
from headrace.testing.agents import CounterAgents

for module in (sys.modules[__name__], agents_model, scripted_agents):
    cloudpickle.register_pickle_by_value(module)

OPTIONS = options_of_resets.map(lambda options: {**options, "set_truncated": True})


class Elsewhere:
    """A replay that is known by its interface alone, as that of a client."""

    def __init__(self, replay):
        self._replay = replay

    def __getattr__(self, name):
        return getattr(self._replay, name)


def unchanged(batch):
    return batch


def test_closed_form():
    """CR8: agents of 2 and 7 steps, T = 5. The first one is marked where it ended, if it takes no other step."""
    with hr.Collector(lambda: CounterAgents([2, 7]), frames_per_batch=10, set_truncated=True) as collector:
        one, two = collector.next(), collector.next()
        assert collector.statistics().episodes == 3
    no, yes = False, True
    assert one["mask"].tolist() == [[yes, yes, no, no, no], [yes] * 5]
    assert one["terminated"].tolist() == [[no, yes, no, no, no], [no] * 5]
    assert one["truncated"].tolist() == [[no, yes, no, no, no], [no, no, no, no, yes]]
    assert two["mask"].tolist() == [[no, no, yes, yes, no], [yes] * 5]
    assert two["t"].tolist() == [[0, 0, 0, 1, 0], [5, 6, 0, 1, 2]]
    assert two["terminated"].tolist() == [[no, no, no, yes, no], [no, yes, no, no, no]]
    assert two["truncated"].tolist() == [[no, no, no, yes, no], [no, no, no, no, yes]]
    assert one["episode_id"].tolist() == [[0, 0, -1, -1, -1], [1] * 5]
    assert two["episode_id"].tolist() == [[-1, -1, 2, 2, -1], [1, 1, 3, 3, 3]]


@settings(max_examples=120, deadline=None)
@given(
    sets_of_scripts,
    st.integers(1, 9),
    OPTIONS,
    st.sampled_from(["none", "replay", "postproc", "elsewhere"]),
    st.data(),
)
def test_every_row_against_the_model(scripts, steps, options, sink, data):
    """CR4 to CR8, CB5, CB6, CQ2, CQ3, CF2: wherever the rows go, with resets and states between two steps."""
    model, made = Model(scripts, steps, **options), []
    replay = None if sink == "none" else replay_of_items(scripts[0])
    numbers = st.sets(st.integers(1, 8), max_size=2)

    def make():
        made.append(
            hr.Collector(
                in_turn(environments(scripts)),
                by_time,
                frames_per_batch=steps * len(model.lanes),
                num_envs=len(scripts),
                replay_buffer=Elsewhere(replay) if sink == "elsewhere" else replay,
                postproc=unchanged if sink == "postproc" else None,
                **options,
            )
        )
        return made[-1]

    batches, rollouts = [], []
    try:
        collector = make()
        for _ in range(4):
            resets = draw_resets(data, model)
            states = data.draw(numbers) if sink == "none" else ()

            def between(collector, step, resets=resets, states=states):
                if step in states:
                    state = pickle.loads(pickle.dumps(collector.state_dict()))
                    collector = make()
                    collector.load_state_dict(state)
                if step in resets:
                    collector.reset(model.lanes_of(resets[step]))
                return collector

            if model.stands_still:
                model.reset()
                collector.reset()
            rollouts.append(model.rollout(resets))
            collector, batch = step_by_step(collector, steps, between)
            check_rows(batch, rollouts[-1])
            batches.append(batch)
        check_ids(batches, rollouts)
    finally:
        for each in made:
            each.shutdown()
    if replay is not None:
        check_items(replay, rollouts)
        replay.close()


SINKS = pytest.mark.parametrize("sink", ["none", "hook", "replay", "postproc", "elsewhere"])
# The end of `b` is followed by a step in which no agent plays: its environment is reset there.
FOUR = Script(
    "abc", "b", (Event(comes="a"), Event(terminated="ab", comes="c"), Event(), Event(terminated="c"))
)


@SINKS
@pytest.mark.parametrize("when_done", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_workers(sync, when_done, sink, tmp_path):
    """CR8, CF2, CF3, CH1: each copy in a process of its own, wherever the rows go."""
    scripts = [FIVE, FOUR] if sync else [FIVE]
    options = {"set_truncated": True, "reset_when_done": when_done, "reset_at_each_iter": not when_done}
    models = [Model([script], 7, **options) for script in scripts]
    has_replay = sink not in ("none", "hook")
    replay = replay_of_items(FIVE) if has_replay else None
    frames = 21 * len(scripts)
    with hr.MultiCollector(
        environments(scripts),
        by_time,
        sync=sync,
        frames_per_batch=frames,
        total_frames=2 * frames,
        replay_buffer=Elsewhere(replay) if sink == "elsewhere" else replay,
        postproc=unchanged if sink == "postproc" else None,
        **options,
    ) as collector:
        if sink == "hook":
            collector.post_collect_hook = lambda batch: np.savez(
                tmp_path / f"{batch.worker_idx}.npz", **batch
            )
        batches = list(collector)
    rollouts = [[lane for model in models for lane in model.rollout()] for _ in batches]
    assert len(batches) > 2
    for batch, rollout in zip(batches, rollouts, strict=True):
        check_rows(batch, rollout)
    if sink == "hook":
        for worker in range(len(scripts)):
            with np.load(tmp_path / f"{worker}.npz") as seen:
                for name in set(batches[-1]) - {"episode_id"}:
                    own = batches[-1][name][3 * worker : 3 * worker + 3]
                    np.testing.assert_array_equal(seen[name], own, err_msg=name)
    if replay is not None:
        check_items(replay, rollouts)
        replay.close()


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_windows_of_a_replay(kind):
    """CR8, CF2: windows go on over the mark of an agent that goes on, and none spans an end or rows of waiting."""
    model = Model([FIVE], 4, set_truncated=True)
    replay = replay_of_items(FIVE)
    with kind(
        partial(environment, FIVE),
        by_time,
        frames_per_batch=12,
        total_frames=24,
        replay_buffer=replay,
        items=[hr.ItemRule("t", 2)],
        set_truncated=True,
    ) as collector:
        batches = list(collector)
    rollouts = [model.rollout() for _ in batches]
    trajectories: dict = {}
    for lane in range(3):
        for row in (row for rollout in rollouts for row in rollout[lane] if row is not None):
            seen = [row[name] for name in ("agent", "episode", "time", "truncated")]
            trajectories.setdefault((lane, row["episode"]), []).append(seen)
    expected = []
    for rows in trajectories.values():
        final = [*rows[-1][:2], rows[-1][2] + 1, False]
        expected += [[one, two] for one, two in itertools.pairwise([*rows, final])]
    data = replay.sample("t", len(expected), timeout=0).data
    found = np.concatenate([data["observation"], data["truncated"][..., None]], axis=-1)
    assert sorted(found.tolist()) == sorted(expected)
    assert not len(replay.table("t"))
    replay.close()


def wait_for_end(collector):
    """Waits until a free run has ended by itself."""
    if isinstance(collector, hr.Collector):
        collector._run._thread.join(40)
    else:
        changed = collector._group.status.changed
        with changed:
            changed.wait_for(lambda: not collector.statistics().running, 40)
    assert not collector.statistics().running


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_free_running(kind):
    """CF4 to CF6, CR8: a pause comes at the end of a rollout, and the replay has all rows of it."""
    model = Model([FIVE], 7, set_truncated=True)
    rollouts = [model.rollout() for _ in range(20)]
    frames_after = [0, *itertools.accumulate(len(known_columns(rollout)[1]["t"]) for rollout in rollouts)]
    replay = replay_of_items(FIVE)
    with kind(
        partial(environment, FIVE),
        by_time,
        frames_per_batch=21,
        total_frames=210,
        replay_buffer=replay,
        set_truncated=True,
    ) as collector:
        collector.start()
        with collector.pause():
            assert collector.statistics().frames in frames_after
        wait_for_end(collector)
        frames = collector.statistics().frames
    check_items(replay, rollouts[: frames_after.index(frames)])
    replay.close()


def test_a_state_of_a_rollout_that_is_written_as_a_whole():
    """CQ3: with a replay there is none in the middle of a rollout; the message says why."""
    replay = replay_of_items(FIVE)
    with hr.Collector(
        partial(environment, FIVE), by_time, frames_per_batch=9, replay_buffer=replay, set_truncated=True
    ) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        with pytest.raises(RuntimeError, match="set_truncated with several agents"):
            collector.state_dict()
        collector.next()
        collector.state_dict()
    replay.close()


def test_views_show_the_marks():
    """CB9, CR8: columns of views are made of the marked rows, and a policy that looks back sees those of its agent."""

    class Looking:
        views = {"before": hr.View("truncated", shift=-1, used_for_training=True)}  # noqa: RUF012

        def compute_actions(self, input_dict):
            return by_time(input_dict["observation"]), [], {"seen": input_dict["before"]}

    with hr.Collector(
        lambda: CounterAgents([2, 7]),
        Looking(),
        frames_per_batch=10,
        set_truncated=True,
        views={"now": hr.View("truncated")},
    ) as collector:
        for _ in range(3):
            batch = collector.next()
            np.testing.assert_array_equal(batch["now"], batch["truncated"])
            np.testing.assert_array_equal(batch["seen"], batch["before"])
