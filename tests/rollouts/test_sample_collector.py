"""`hr.SampleCollector` and classes derived from it (views-rollouts C3)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_rollouts import Recurrent, counters, worker
from scripted_agents import ScriptedEnv, Turn, Watched, by_time

import headrace as hr
from headrace.rollouts.pieces import SampleKey

VIEWS = {
    "stack": hr.View("observation", shift="-2:0", fill="edge", mask=True),
    "prev": hr.View("action", shift=-1),
    "hidden": hr.View("reward", used_for_training=False),
}


OF_OTHERS = {
    "b acted": hr.View("action", shift="-2:-1", agent="b", mask=True),
    "others saw": hr.View("observation", shift=0, agent=["b", "c"], fill="edge", mask=True),
    "others got": hr.View("reward", shift=[0, 1], agent=["a", "c"], mask=True),
}
BOOKKEEPING = {
    "env_t before": hr.View("env_t", shift=[-1, 0]),
    "t before": hr.View("t", shift=-1, mask=True),
    "who": hr.View("agent_index"),
}


class Stepwise(hr.SampleCollector):
    """Changes nothing; takes each step by itself."""

    def add_step(self, key, values, *, env_t):
        super().add_step(key, values, env_t=env_t)


@pytest.mark.parametrize("longest", [None, 3])
@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("postprocess", [False, True])
@pytest.mark.parametrize("horizon", [{}, {"horizon": 3}, {"horizon": 3, "soft_horizon": True}])
def test_a_collector_that_changes_nothing_gives_the_same_batches(
    longest: int | None, mode: str, postprocess: bool, horizon: dict[str, Any]
):
    # C3, and H2: history goes on across a soft horizon
    def batches(sample_collector: Any) -> list[hr.SampleBatch]:
        policy = Recurrent()
        policy.version = 4  # type: ignore[attr-defined]
        if postprocess:
            policy.postprocess_trajectory = lambda batch, others, episode: None  # type: ignore[attr-defined]
        with worker(
            counters(4, 7, 1), policy, num_envs=2, views=VIEWS, max_seq_len=longest, batch_mode=mode,
            sample_collector=sample_collector, **horizon,
        ) as made:  # fmt: skip
            return [made.sample() for _ in range(4)]  # type: ignore[misc]

    for one, other in zip(batches(None), batches(Stepwise), strict=True):
        assert (one.seq_lens is None) == (longest is None)
        _check_same(one, other)


def _check_same(one: Any, other: Any) -> None:
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        assert one[name].dtype == other[name].dtype


@pytest.mark.parametrize("horizon", [{}, {"horizon": 2, "soft_horizon": True}])
@pytest.mark.parametrize("length", [1, 3])
def test_several_agents_step_by_step_give_the_same_batches(length: int, horizon: dict[str, Any]):
    # C3, H2, M9, R9, R10: with views of other agents, of bookkeeping, and of `info`
    class Informing(ScriptedEnv):
        def step(self, actions):
            *results, _ = super().step(actions)
            return *results, {name: {"time": 10 * self.time + "abc".index(name)} for name in "abc"}

    def create():
        return Informing(
            "a",
            Turn("ab"),
            Turn("b", {"a": 0.5, "b": 1}),
            Turn("a", {"a": 1, "b": 1}, "b"),
            Turn("ac"),
            Turn("ac"),
        )

    def batches(sample_collector: Any) -> tuple[list[Any], list[Any]]:
        policy = Watched()
        with worker(
            create,
            policy,
            num_envs=2,
            views=VIEWS | OF_OTHERS | BOOKKEEPING | {"time": hr.View("info/time", shift=[-1, 0])},
            rollout_fragment_length=length,
            sample_collector=sample_collector,
            **horizon,
        ) as made:
            samples = [made.sample() for _ in range(12 // length)]
        return [sample["default_policy"] for sample in samples if sample.agent_steps()], policy.seen

    plain, seen_plain = batches(None)
    stepwise, seen_stepwise = batches(Stepwise)
    for one, other in zip(plain, stepwise, strict=True):
        _check_same(one, other)
    for one, other in zip(seen_plain, seen_stepwise, strict=True):
        assert "b acted" in one
        _check_same(one, other)


def test_views_of_others_stand_beside_the_steps_that_an_override_kept():
    # M9: a row finds the others at its own environment step
    class EverySecond(hr.SampleCollector):
        def add_step(self, key, values, *, env_t):
            if env_t % 2 == 0:
                super().add_step(key, values, env_t=env_t)

    with worker(
        lambda: ScriptedEnv("ab", *[Turn("ab")] * 9),
        by_time,
        views={"b saw": hr.View("observation", agent="b")},
        rollout_fragment_length=6,
        sample_collector=EverySecond,
    ) as made:
        batch = made.sample()["default_policy"]
    assert batch["env_t"].tolist() == [0, 2, 4] * 2
    assert batch["b saw"][:, 2].tolist() == [0, 2, 4] * 2


def test_views_of_others_need_the_environment_steps_of_rows():
    class Halved(hr.SampleCollector):
        def cut(self, key, *, end):
            whole = super().cut(key, end=end)
            return None if whole is None else hr.SampleBatch({"observation": whole["observation"][::2]})

    views = {"b saw": hr.View("observation", agent="b")}
    create = lambda: ScriptedEnv("ab", *[Turn("ab")] * 9)  # noqa: E731
    with worker(create, by_time, views=views, sample_collector=Halved) as made:
        with pytest.raises(
            hr.SpecError, match=r"cut: views of other agents and of bookkeeping need a column env_t"
        ):
            made.sample()


class Walker(gymnasium.Env):
    """Walks and jumps; observes the number of steps."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Dict(
        jump=gymnasium.spaces.Discrete(2), move=gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    )

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._time += 1
        return np.full(1, self._time, np.float32), 1.0, self._time == 3, False, {}


@pytest.mark.parametrize("sample_collector", [None, Stepwise])
def test_a_tree_of_actions_before_a_first_step_is_zero(sample_collector: Any):
    # V15
    seen: list[Any] = []

    class Policy:
        def compute_actions(self, input_dict):
            seen.append(input_dict)
            count = len(input_dict["observation"])
            return {"jump": np.ones(count, np.int64), "move": np.full((count, 3), 0.5, np.float32)}

    views = {"last": hr.View("action", shift=-1), "jumps": hr.View("action/jump", shift="-2:-1", mask=True)}
    with worker(Walker, Policy(), views=views, sample_collector=sample_collector) as made:
        batch = made.sample()
    for step, row in enumerate([0, 1, 1, 0, 1, 1]):
        for last in (seen[step]["last"], {name: column[step] for name, column in batch["last"].items()}):
            np.testing.assert_array_equal(np.ravel(last["move"]), np.full(3, 0.5 * row))
            assert (last["move"].dtype, np.ravel(last["jump"]).tolist()) == (np.float32, [row])
    assert seen[0]["jumps"].tolist() == [[0, 0]]
    assert batch["jumps_mask"].tolist() == [[False, False], [False, True], [True, True]] * 2


def test_an_override_changes_what_is_collected():
    class Doubled(hr.SampleCollector):
        def add_step(self, key, values, *, env_t):
            assert key.agent_id == "agent0"
            super().add_step(key, {**values, "reward": 2 * values["reward"], "env_time": env_t}, env_t=env_t)

    with worker(counters(4), sample_collector=Doubled) as made:
        batch = made.sample()
    assert batch["reward"].tolist() == [0, 10, 20, 30, 0, 10]
    assert batch["env_time"].tolist() == [1, 2, 3, 4, 1, 2]


def test_an_override_may_leave_out_steps():
    class EverySecond(hr.SampleCollector):
        def add_step(self, key, values, *, env_t):
            if env_t % 2:
                super().add_step(key, values, env_t=env_t)

    with worker(counters(4), sample_collector=EverySecond, rollout_fragment_length=4) as made:
        batch = made.sample()
    # The policy does not see the observations of the steps that were left out.
    assert batch["reward"].tolist() == [0, 8 + 1]
    assert batch["episode_id"].tolist() == [0, 0]


def test_the_worker_makes_one_for_each_policy_and_calls_four_methods():
    calls: list[Any] = []

    class Told:
        def __init__(self, views, *, max_seq_len):
            calls.append(("made", max_seq_len))
            self.inner = hr.SampleCollector(views, max_seq_len=max_seq_len)

        def add_first(self, key, observation, *, env_t):
            calls.append(("first", key.env_index, env_t))
            self.inner.add_first(key, observation, env_t=env_t)

        def add_step(self, key, values, *, env_t):
            calls.append(("step", set(values), env_t))
            self.inner.add_step(key, values, env_t=env_t)

        def input_dict(self, keys):
            calls.append(("input", len(keys)))
            return self.inner.input_dict(keys)

        def cut(self, key, *, end):
            calls.append(("cut", end))
            return self.inner.cut(key, end=end)

    with worker(counters(2), Recurrent(), sample_collector=Told, rollout_fragment_length=3) as made:
        made.sample()
    names = {
        *("action", "reward", "terminated", "truncated", "observation"),
        *("doubled", "state_out_0", "state_out_1"),
    }
    assert calls == [
        ("made", None), ("first", 0, 0),
        ("input", 1), ("step", names, 1), ("input", 1), ("step", names, 2), ("cut", True),
        ("first", 0, 0), ("input", 1), ("step", names, 1), ("cut", False),
    ]  # fmt: skip


def test_a_collector_alone():
    collector = hr.SampleCollector(
        {"observation": hr.View(), "prev": hr.View("reward", shift=-1)}, max_seq_len=2
    )
    keys = [SampleKey(0, 0, "a"), SampleKey(0, 0, "b")]
    for key in keys:
        collector.add_first(key, np.array([0.0]), env_t=0)
    for t in range(3):
        collector.add_step(keys[0], {"reward": 1.0 + t, "observation": np.array([t + 1.0])}, env_t=t + 1)
    assert collector.input_dict(keys)["observation"].tolist() == [[3.0], [0.0]]
    assert collector.input_dict(keys[:1])["prev"].tolist() == [3.0]
    batch = collector.cut(keys[0], end=False)
    assert batch is not None
    assert batch["prev"].tolist() == [0, 1, 2]
    assert batch.seq_lens.tolist() == [2, 1]
    assert collector.cut(keys[1], end=True) is None
    collector.add_step(keys[0], {"reward": 9.0}, env_t=4)
    batch = collector.cut(keys[0], end=True)
    assert batch is not None
    assert (batch["t"].tolist(), batch["prev"].tolist()) == ([3], [3.0])
    with pytest.raises(KeyError):
        collector.cut(keys[0], end=True)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"bonus": 0.5}, "^bonus: expected int64.*float is never stored as integer"),
        ({"reward": [1.0, 2.0]}, "^reward: expected float32"),
        ({"observation": np.zeros(4, np.int64)}, "^observation: expected int64"),
    ],
)
def test_values_that_a_column_cannot_hold_are_refused_and_change_nothing(wrong: dict[str, Any], told: str):
    # The first value of a column tells its dtype; a fraction in a column of integers would be lost.
    key = SampleKey(0, 0, "agent0")
    collector = hr.SampleCollector({"observation": hr.View()})
    collector.add_first(key, np.zeros(2, np.int64), env_t=0)
    step = {"action": 3, "reward": 1.0, "bonus": 0, "observation": np.ones(2, np.int64)}
    collector.add_step(key, step, env_t=1)
    with pytest.raises(hr.SpecError, match=told):
        collector.add_step(key, {**step, **wrong}, env_t=2)
    collector.add_step(key, {**step, "bonus": 2}, env_t=2)
    batch = collector.cut(key, end=True)
    assert batch is not None
    assert batch["bonus"].tolist() == [0, 2]
    assert batch["observation"].tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("horizon", [{}, {"horizon": 2, "soft_horizon": True}])
def test_the_collectors_memory_does_not_grow(horizon: dict[str, Any]):
    # R16
    collectors: list[Any] = []

    class Kept(Stepwise):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            collectors.append(self)

    with worker(counters(3, 5), sample_collector=Kept, num_envs=2, views=VIEWS, **horizon) as made:
        for _ in range(60):
            made.sample()
    assert len(collectors) == 1
    assert collectors[0]._rows.arrays["observation"].shape[0] == 8 * 64
    assert len(collectors[0]._trajectories) <= 2


@pytest.mark.parametrize("soft", [False, True])
def test_horizons_and_errors_step_by_step(soft: bool):
    failures = [3]

    def policy(seen):
        failures[0] -= 1
        if failures[0] == 0:
            raise ArithmeticError("no idea")
        return seen[:, 2] % 4

    with worker(counters(50), policy, sample_collector=Stepwise, horizon=4, soft_horizon=soft) as made:
        with pytest.raises(ArithmeticError):
            made.sample()
        assert made.sample()["t"].tolist() == [0, 1, 2, 3, 0, 1]
