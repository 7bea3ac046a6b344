"""Views of entries of `info`, and several policies for environments with one agent (R9, V2, V15, M2)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_rollouts import worker
from gymnasium import spaces
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_agents import ScriptedEnv, Turn, by_time

import headrace as hr
from headrace.rollouts import Callbacks
from headrace.testing import CounterEnv


class Stepwise(hr.SampleCollector):
    """Changes nothing; takes each step by itself."""

    def add_step(self, key, values, *, env_t):
        super().add_step(key, values, env_t=env_t)


NUMBER = spaces.Box(0, 100, (), np.float64)


class Informing(gymnasium.Env[Any, Any]):
    """Observes and tells the time; an episode has three steps."""

    observation_space = spaces.Box(0, 100, (), np.int64)
    action_space = spaces.Discrete(100)

    def __init__(self, missing: tuple[int, ...] = ()) -> None:
        self._missing = list(missing)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.int64(0), {}

    def step(self, action):
        self.time += 1
        self._steps += 1
        info = {"time": float(self.time), "parts": {"half": self.time / 2}, "name": "not an array"}
        if self._steps in self._missing:
            del info["time"]
        return np.int64(self.time), 1.0, self.time == 3, False, info


class Endless(Informing):
    """The same without ends."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


def zeros(observation: Any) -> Any:
    return np.zeros(len(observation), np.int64)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_views_show_entries_of_info(length: int):
    views = {"time": hr.View("info/time"), "half": hr.View("info/parts/half", shift=[0, 1], mask=True)}
    with worker(Informing, zeros, num_envs=2, rollout_fragment_length=length, views=views) as made:
        batch = hr.SampleBatch.concat([made.sample() for _ in range(4 // length)])
    assert batch["time"].dtype == np.float64
    assert np.array_equal(batch["time"], batch["t"] + 1)
    assert np.array_equal(batch["half"][:, 0], batch["time"] / 2)
    assert batch["half_mask"][:, 0].all()
    assert "info" not in batch


def test_a_policy_sees_the_info_of_the_last_step():
    # V15: its spec is that of the space
    seen = []

    class Policy:
        def compute_actions(self, input_dict):
            seen.append((input_dict["last"].tolist(), input_dict["last_mask"].tolist()))
            return zeros(input_dict["observation"])

    views = {"last": hr.View("info/time", NUMBER, shift=-1, mask=True)}
    with worker(Informing, Policy(), views=views, rollout_fragment_length=4) as made:
        batch = made.sample()
    assert seen == [([0.0], [False]), ([1.0], [True]), ([2.0], [True]), ([0.0], [False])]
    assert batch["last"].tolist() == [0, 1, 2, 0]


def test_a_view_of_info_that_the_policy_sees_needs_a_space():
    with pytest.raises(hr.SpecError, match=r"'last'.*info/time.*space"):
        worker(Informing, zeros, views={"last": hr.View("info/time", shift=-1)})


def test_a_view_of_info_may_come_later():
    with worker(Informing, zeros, rollout_fragment_length=3) as made:
        assert "time" not in made.sample()
        made.views["time"] = hr.View("info/time")
        assert made.sample()["time"].tolist() == [1, 2, 3]


def test_a_view_of_info_that_comes_back_shows_no_older_values():
    views = {"stack": hr.View("observation", shift="-3:0")}
    with worker(Endless, zeros, rollout_fragment_length=6, views=views) as made:
        for is_shown in (True, True, False):
            made.views.pop("time", None)
            if is_shown:
                made.views["time"] = hr.View("info/time")
            made.sample()
        made.views["time"] = hr.View("info/time", shift="-3:0")
        times = made.sample()["time"]
    assert times[0].tolist() == [0, 0, 0, 19]
    assert times[3].tolist() == [19, 20, 21, 22]


WINDOW = np.arange(-3, 1)
# The entry that each view shows, and the view.
LATER = {
    "times": ("time", hr.View("info/time", shift="-3:0", mask=True)),
    "now": ("time", hr.View("info/time", NUMBER)),
    "parts": ("parts", hr.View("info/parts", shift="-3:0", mask=True)),
}


@pytest.mark.parametrize("sample_collector", [None, Stepwise])
@pytest.mark.parametrize("env", [Informing, Endless])
@given(
    st.lists(st.sets(st.sampled_from(sorted(LATER))), min_size=1, max_size=6),
    st.sampled_from([1, 2, 5]),
)
@example([set(), {"times", "parts"}, {"times"}], 40)
@settings(max_examples=20)
def test_views_of_info_show_nothing_from_before_they_came(env, sample_collector, fragments, length):
    # R9, V2: views come and go within episodes; a place that was not recorded is not data.
    episode = 3 if env is Informing else 10**9
    recorded: dict[str, int] = {}
    # Lanes keep so many rows that they grow while a view is new.
    views = {"stack": hr.View("observation", shift="-40:0")}
    with worker(
        env,
        zeros,
        views=views,
        num_envs=2,
        rollout_fragment_length=length,
        sample_collector=sample_collector,
    ) as made:
        for number, names in enumerate(fragments):
            for name, (_, view) in LATER.items():
                made.views.pop(name, None)
                if name in names:
                    made.views[name] = view
            entries = {LATER[name][0] for name in names}
            recorded = {entry: recorded.get(entry, number * length) for entry in entries}
            batch = made.sample()
            places = np.tile(np.arange(length) + number * length, 2)[:, None] + WINDOW
            begins = places[:, -1:] // episode * episode
            for name in names:
                entry, _ = LATER[name]
                known = (places >= begins) & (places >= recorded[entry])
                values = np.where(known, places - begins + 1, 0) / (2 if entry == "parts" else 1)
                found = batch[name]["half"] if name == "parts" else batch[name]
                if name == "now":
                    assert np.array_equal(found, values[:, -1])
                else:
                    assert np.array_equal(found, values)
                    assert np.array_equal(batch[f"{name}_mask"], known)


@pytest.mark.parametrize("sample_collector", [None, Stepwise])
def test_a_policy_sees_that_nothing_was_recorded_before_a_view_came(sample_collector):
    # R9, P2
    seen = []

    class Policy:
        def compute_actions(self, input_dict):
            if "last" in input_dict:
                seen.append((input_dict["last"].tolist(), input_dict["last_mask"].tolist()))
            return zeros(input_dict["observation"])

    views = {"stack": hr.View("observation", shift="-3:0")}
    with worker(
        Endless, Policy(), views=views, rollout_fragment_length=3, sample_collector=sample_collector
    ) as made:
        made.sample()
        made.views["last"] = hr.View("info/time", NUMBER, shift="-2:-1", mask=True)
        made.sample()
    assert seen == [
        ([[0.0, 0.0]], [[False, False]]),
        ([[0.0, 4.0]], [[False, True]]),
        ([[4.0, 5.0]], [[True, True]]),
    ]


@pytest.mark.parametrize("sample_collector", [None, Stepwise])
@pytest.mark.parametrize("several", [False, True])
def test_views_of_bookkeeping_may_come_in_the_middle_of_an_episode(several: bool, sample_collector: Any):
    # R9: they show the rows from before too, to the policy as to the learner
    stack = {"stack": hr.View("observation", shift="-2:0")}
    added = {
        name: hr.View(name, shift="-2:0", mask=True)
        for name in ("t", "env_t", "episode_id", "env_id", "agent_index")
    }
    views = {**stack, **{f"last {name}": view for name, view in added.items()}}

    def create():
        return ScriptedEnv("b", *[Turn("ab")] * 9) if several else CounterEnv(9)

    def second(at_first: dict[str, hr.View]) -> tuple[hr.SampleBatch, list[Any]]:
        seen = []

        class Policy:
            def compute_actions(self, input_dict):
                seen.append(input_dict)
                return zeros(input_dict["observation"])

        with worker(
            create,
            Policy(),
            num_envs=2,
            rollout_fragment_length=4,
            views=at_first,
            sample_collector=sample_collector,
        ) as made:
            made.sample()
            made.views.update(views)
            batch = made.sample()
        return (batch["default_policy"] if several else batch), seen[4:]

    (late, seen), (expected, wanted) = second(stack), second(views)
    assert set(late) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(late[name], expected[name])
    for step, other in zip(seen, wanted, strict=True):
        assert set(step) == set(other)
        for name in other:
            np.testing.assert_array_equal(step[name], other[name])


def test_a_step_without_the_entry_drops_the_episode_of_its_environment_alone():
    # R14
    def create(context):
        return Informing((2,) if context.env_index == 1 else ())

    views = {"time": hr.View("info/time")}
    with worker(create, zeros, num_envs=3, rollout_fragment_length=3, views=views) as made:
        with pytest.raises(hr.SpecError, match="environment 1: info/time: expected this entry"):
            made.sample()
        batch = made.sample()
    assert batch["time"].tolist() == [1, 2, 3] * 3


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            [0, 0.5, 1],
            "environment 0: info/time: expected int64.*float is never stored as integer; the space of a view",
        ),
        ([0.5, [1.0, 2.0], 1.0], "environment 0: info/time: expected"),
        (["a", "b", "c"], "environment 0: info/time: expected an array of numbers or booleans, got str"),
    ],
)
def test_an_entry_that_its_column_cannot_hold_is_refused(values: list[Any], told: str):
    # R9: the first value tells the dtype; the fraction of a later one would be lost
    class Changing(Informing):
        def step(self, action):
            *others, info = super().step(action)
            return *others, {**info, "time": values[self.time - 1]}

    views = {"time": hr.View("info/time")}
    with (
        worker(Changing, zeros, rollout_fragment_length=3, views=views) as made,
        pytest.raises(hr.SpecError, match=told),
    ):
        made.sample()


def test_agents_have_infos_of_their_own():
    # M4: the one that came with the observation that completed the step
    class Env(ScriptedEnv):
        def step(self, actions):
            observations, rewards, terminated, truncated, _ = super().step(actions)
            infos = {name: {"x": 10.0 * "ab".index(name) + self.time} for name in "ab"}
            return observations, rewards, terminated, truncated, infos

    def create():
        return Env("ab", Turn("a"), Turn("ab", {"a": 1, "b": 1}), Turn("ab"))

    with worker(create, by_time, rollout_fragment_length=3, views={"x": hr.View("info/x")}) as made:
        batch = made.sample()["default_policy"]
    assert batch["x"].tolist() == [1, 2, 3, 12, 13]


def test_an_overriding_collector_gets_infos():
    # C3
    class Doubling(hr.SampleCollector):
        def add_step(self, key, values, *, env_t):
            info = {"time": values["info"]["time"] * 2}
            super().add_step(key, {**values, "info": info}, env_t=env_t)

    with worker(
        Informing, zeros, sample_collector=Doubling, rollout_fragment_length=3,
        views={"time": hr.View("info/time")},
    ) as made:  # fmt: skip
        batch = made.sample()
    assert batch["time"].tolist() == [2, 4, 6]
    assert "info" not in batch


def test_episodes_of_one_agent_may_have_different_policies():
    # M2
    ended = []

    class Ends(Callbacks):
        def on_episode_end(self, *, worker, episode, env_index):
            ended.append(dict(episode.agent_rewards))

    policies = {"even": zeros, "odd": lambda observation: zeros(observation) + 1}
    with worker(
        Informing, policies, rollout_fragment_length=7, seed=3, callbacks=Ends,
        policy_mapping_fn=lambda agent, episode: "odd" if episode.episode_id % 2 else "even",
    ) as made:  # fmt: skip
        batch = made.sample()
    assert batch.env_steps() == batch.agent_steps() == 7
    assert batch["even"]["t"].tolist() == [0, 1, 2, 0]
    assert batch["odd"]["action"].tolist() == [1, 1, 1]
    assert batch["odd"]["terminated"].tolist() == [False, False, True]
    assert ended == [{"agent0": 3.0}] * 2
