"""The options of collection, against a plain model that simulates every copy step by step."""

import sys
from dataclasses import dataclass, field

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROW = ("copy", "episode", "step", "terminated", "truncated", "t", "episode_id", "version")


@dataclass
class Copy:
    """One counter environment with episodes of `length` steps."""

    length: int
    episode: int = 0
    step: int = 0
    identity: int = -1
    waits: bool = False


@dataclass
class Model:
    """Model of the rows that a collector hands out (collectors CR4 to CR8, CQ2, CB5, CB6)."""

    lengths: list
    steps: int
    limit: int | None = None
    random_frames: int = 0
    reset_at_each_iter: bool = False
    reset_when_done: bool = True
    set_truncated: bool = False
    begun: int = 0
    next_id: int = 0
    copies: list = field(default_factory=list)

    def __post_init__(self):
        self.copies = [Copy(length) for length in self.lengths]

    def reset(self, chosen=None):
        if not self.begun or (self.reset_at_each_iter and chosen is not None):
            return  # All are reset before the next rollout anyway.
        for i, copy in enumerate(self.copies):
            if chosen is None or chosen[i]:
                copy.episode, copy.step, copy.identity, copy.waits = copy.episode + 1, 0, -1, False

    def rollout(self):
        """Returns a list of T rows for each copy; None is a masked row."""
        if self.reset_at_each_iter and self.begun:
            self.reset()
        version = -1 if self.begun < self.random_frames else 0
        self.begun += self.steps * len(self.copies)
        rows = [
            [self._step(i, copy, version) for i, copy in enumerate(self.copies)] for _ in range(self.steps)
        ]
        lanes = [list(lane) for lane in zip(*rows, strict=True)]
        if self.set_truncated:
            for lane in lanes:
                valid = [row for row in lane if row is not None]
                if valid:
                    valid[-1]["truncated"] = True
        return lanes

    def _step(self, i, copy, version):
        if copy.waits:
            return None
        if copy.identity < 0:
            copy.identity, self.next_id = self.next_id, self.next_id + 1
        t = copy.step
        copy.step += 1
        terminated = copy.step == copy.length
        truncated = self.limit is not None and copy.step == self.limit
        values = (i, copy.episode, t, terminated, truncated, t, copy.identity, version)
        if terminated or truncated:
            if self.reset_when_done:
                copy.episode, copy.step, copy.identity = copy.episode + 1, 0, -1
            else:
                copy.waits = True
        return dict(zip(ROW, values, strict=True))

    @property
    def stands_still(self):
        return all(copy.waits for copy in self.copies) and not self.reset_at_each_iter


def check(batch, lanes):
    """Every column of a batch against the rows of the model."""
    mask = np.array([[row is not None for row in lane] for lane in lanes])
    np.testing.assert_array_equal(batch["mask"], mask)
    assert batch.frames == mask.sum()
    for name, column in batch.items():  # CB6
        assert (column[~mask] == (-1 if name == "episode_id" else 0)).all(), name
    rows = [row for lane in lanes for row in lane if row is not None]
    known = {name: np.array([row[name] for row in rows], int) for name in ROW}
    seen = np.stack([known["copy"], known["episode"], known["step"]], axis=1).reshape(-1, 3)
    np.testing.assert_array_equal(batch["observation"][mask], seen)
    np.testing.assert_array_equal(batch["next_observation"][mask], np.add(seen, [0, 0, 1]))
    np.testing.assert_array_equal(batch["reward"][mask], 4 * known["step"] + batch["action"][mask])
    for name in ("terminated", "truncated", "t", "episode_id"):
        np.testing.assert_array_equal(batch[name][mask], known[name], name)
    np.testing.assert_array_equal(batch["policy_version"][mask], known["version"])


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


OPTIONS = st.fixed_dictionaries(
    {
        "reset_at_each_iter": st.booleans(),
        "reset_when_done": st.booleans(),
        "set_truncated": st.booleans(),
        "max_frames_per_traj": st.none() | st.integers(1, 9),
        "init_random_frames": st.none() | st.integers(1, 30),
    }
)
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def model_of(lengths, steps, options):
    names = {"max_frames_per_traj": "limit", "init_random_frames": "random_frames"}
    given = {names.get(name, name): value for name, value in options.items() if value is not None}
    return Model(lengths, steps, **given)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 12), OPTIONS, st.data())
def test_cr4_to_cr8_cq2_every_row_against_the_model(lengths, steps, options, data):
    model = model_of(lengths, steps, options)
    with hr.Collector(
        in_turn(counter_env_fns(lengths)),
        act,
        frames_per_batch=steps * len(lengths),
        num_envs=len(lengths),
        **options,
    ) as collector:
        frames, episodes = 0, 0
        for _ in range(6):
            if model.stands_still:
                with pytest.raises(RuntimeError, match="waits for a reset"):
                    collector.next()
                model.reset()
                collector.reset()
            elif data.draw(st.integers(0, 3)) == 0:
                chosen = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
                collector.reset(chosen)
                model.reset(chosen)
            lanes = model.rollout()
            check(collector.next(), lanes)
            rows = [row for lane in lanes for row in lane if row is not None]
            frames += len(rows)
            ends = [lengths[row["copy"]] == row["t"] + 1 or model.limit == row["t"] + 1 for row in rows]
            episodes += sum(ends)
        statistics = collector.statistics()
        assert (statistics.frames, statistics.episodes) == (frames, episodes)


def test_cr6_a_rollout_begins_with_a_reset_of_all(rows_by_copy, take):
    envs = [CounterEnv(7), CounterEnv(4, copy=1)]
    with hr.Collector(
        in_turn([lambda: envs[0], lambda: envs[1]]),
        frames_per_batch=10,
        num_envs=2,
        seed=3,
        reset_at_each_iter=True,
    ) as collector:
        batches = take(collector, 3)
    assert [env.seeds for env in envs] == [[3, None, None], [4] + [None] * 5]  # CS2; never twice in a row.
    for batch in batches:
        assert batch["t"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 0]]
        assert not batch["truncated"].any()
        assert batch["terminated"].tolist() == [[False] * 5, [False, False, False, True, False]]
    assert [batch["episode_id"][0, 0] for batch in batches] == [0, 3, 6]


@pytest.mark.parametrize("mode", ["disabled", "same_step", "next_step"])
def test_cr6_cr8_vector_environments(mode, take):
    # The cut of NEXT_STEP: an environment that is about to reset itself is reset once.
    env = counter_vector_env([3, 5], mode)
    with hr.Collector(env, frames_per_batch=6, reset_at_each_iter=True, set_truncated=True) as collector:
        batches = take(collector, 3)
    for batch in batches:
        assert batch["t"].tolist() == [[0, 1, 2], [0, 1, 2]]
        assert batch["mask"].all()
        assert batch["terminated"].tolist() == [[False, False, True], [False, False, False]]
        assert batch["truncated"].tolist() == [[False, False, True]] * 2
        np.testing.assert_array_equal(batch["next_observation"][..., 2], batch["t"] + 1)


def test_cr7_needs_environments_that_are_reset_from_outside():
    with pytest.raises(ValueError, match="reset_when_done"):
        hr.Collector(counter_vector_env([3], "same_step"), frames_per_batch=4, reset_when_done=False)


def test_cr7_environments_that_wait_are_not_stepped_and_the_policy_is_not_asked_for_none(take):
    calls = []

    def policy(observation):
        calls.append(observation[:, 2].tolist())
        return np.zeros(len(observation), int)

    fns = in_turn(counter_env_fns([2, 4]))
    with hr.Collector(
        fns, policy, frames_per_batch=12, total_frames=24, num_envs=2, reset_when_done=False
    ) as collector:
        (batch,) = take(collector, 1)
        assert [len(env.actions) for env in collector._loop.stepper.environments] == [2, 4]
        with pytest.raises(TypeError, match="reset_when_done"):
            len(collector)
    assert calls == [[0, 0], [1, 1], [2, 2], [2, 3]]  # One that waits shows its last observation.
    assert batch["mask"].tolist() == [[True] * 2 + [False] * 4, [True] * 4 + [False] * 2]


def test_cr7_a_vector_environment_without_autoreset(take):
    with hr.Collector(
        counter_vector_env([2, 4], "disabled"), frames_per_batch=12, reset_when_done=False
    ) as collector:
        (batch,) = take(collector, 1)
        assert batch["mask"].sum(axis=1).tolist() == [2, 4]
        collector.reset([True, False])
        (batch,) = take(collector, 1)
        assert batch["mask"].sum(axis=1).tolist() == [2, 0]
        assert batch["episode_id"][0].tolist() == [2, 2, -1, -1, -1, -1]


def test_cr8_example_of_the_page(take):
    with hr.Collector(lambda: CounterEnv(7), frames_per_batch=5, set_truncated=True) as collector:
        one, two = take(collector, 2)
        assert collector.statistics().episodes == 1
    assert one["truncated"].tolist() == [[False] * 4 + [True]]
    assert not one["terminated"].any()
    assert two["t"].tolist() == [[5, 6, 0, 1, 2]]
    assert two["terminated"].tolist() == [[False, True, False, False, False]]
    assert two["truncated"].tolist() == [[False] * 4 + [True]]


def test_cr8_the_last_valid_row_of_next_step(take):
    # The reset takes the last step: the row before it is the copy's last one.
    env = counter_vector_env([3, 9], "next_step")
    with hr.Collector(env, frames_per_batch=8, set_truncated=True) as collector:
        (batch,) = take(collector, 1)
        assert collector.statistics().episodes == 1
    assert batch["mask"].tolist() == [[True, True, True, False], [True] * 4]
    assert batch["truncated"].tolist() == [[False, False, True, False], [False, False, False, True]]
    assert batch["terminated"].tolist() == [[False, False, True, False], [False] * 4]


class Recurrent:
    """Its state counts the steps of the episode."""

    def __init__(self):
        self.initial_state = [np.zeros((), np.int64)]
        self.views = {"last": hr.View("reward", shift=-1, fill=-7.0)}

    def compute_actions(self, input_dict):
        state = input_dict["state_in_0"]
        return np.zeros(len(state), int), [state + 1], {"seen": input_dict["last"]}


@pytest.mark.parametrize("option", ["reset_at_each_iter", "reset_when_done", "reset"])
def test_cp6_states_and_views_begin_anew_with_each_reset(option, take):
    options = {"reset_at_each_iter": True} if option == "reset_at_each_iter" else {}
    if option == "reset_when_done":
        options = {"reset_when_done": False}
    fns = in_turn(counter_env_fns([4, 50]))
    with hr.Collector(fns, Recurrent(), frames_per_batch=12, num_envs=2, **options) as collector:
        batches = take(collector, 1)
        for _ in range(3):
            if option != "reset_at_each_iter":
                collector.reset([True, False])
            batches += take(collector, 1)
    for batch in batches:
        mask = batch["mask"]
        assert mask.any(axis=1).all()
        np.testing.assert_array_equal(batch["state_in_0"][mask], batch["t"][mask])
        known = np.where(batch["t"] == 0, -7, 4 * (batch["t"] - 1))
        np.testing.assert_array_equal(batch["seen"][mask], known[mask])


def test_cq2_reset_checks_its_argument(take):
    with hr.Collector(lambda: CounterEnv(7), frames_per_batch=4, num_envs=2) as collector:
        with pytest.raises(ValueError, match="expected 2 bools"):
            collector.reset([True])
        with pytest.raises(TypeError, match="bools"):
            collector.reset([0, 1])
        collector.reset([False, False])
        take(collector, 1)
        collector.reset([False, True])
        (batch,) = take(collector, 1)
        assert batch["t"].tolist() == [[2, 3], [0, 1]]
        assert batch["episode_id"].tolist() == [[0, 0], [2, 2]]
    with pytest.raises(hr.Closed):
        collector.reset()


@pytest.mark.parametrize("name", ["reset_at_each_iter", "reset_when_done", "set_truncated"])
def test_cr13_options_are_bools(name):
    with pytest.raises(TypeError, match=name):
        hr.Collector(lambda: CounterEnv(7), frames_per_batch=4, **{name: 1})


def test_cr6_to_cr8_cq2_items_of_a_replay(make_replay, take):
    # Every transition is an item once, its next observation with it; a cut carries no flag.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000)
    fns = in_turn(counter_env_fns([3, 5]))
    rows = []
    with hr.Collector(
        fns, frames_per_batch=8, num_envs=2, reset_when_done=False, set_truncated=True, replay_buffer=replay
    ) as collector:
        for chosen in [[True, False], [True, True], [False, True], [True, False]]:
            batch = collector.next()
            rows.append(batch.flatten())
            collector.reset(chosen)
    table = replay.table("t")
    stored = replay.sample("t", 2000, views=hr.views.transition()).data
    assert len(table) == sum(each.frames for each in rows)
    known = {
        (*row, *after, bool(end))
        for batch in rows
        for row, after, end in zip(
            batch["observation"].tolist(),
            batch["next_observation"].tolist(),
            batch["terminated"],
            strict=True,
        )
    }
    seen = {
        (*row, *after, bool(end))
        for row, after, end in zip(
            stored["observation"].tolist(),
            stored["next_observation"].tolist(),
            stored["discount"] == 0,
            strict=True,
        )
    }
    assert len(known) == sum(each.frames for each in rows)
    assert seen == known
