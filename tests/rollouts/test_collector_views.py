"""A collector derived from `hr.SampleCollector` presents the same views as the default one (C3, R9, R10, V14, V15)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_rollouts import worker
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr

# The paths of an `info`, and the space of each.
ENTRIES: dict[str, spaces.Space[Any]] = {
    "info/lives": spaces.Box(0, 99, (), np.int64),
    "info/wind": spaces.Box(0, 99, (2,), np.float32),
    "info/parts/half": spaces.Box(0, 99, (), np.float64),
    "info/parts/whole": spaces.Box(0, 99, (3,), np.uint8),
    "info/parts": spaces.Dict(
        half=spaces.Box(0, 99, (), np.float64), whole=spaces.Box(0, 99, (3,), np.uint8)
    ),
}


class Stepwise(hr.SampleCollector):
    """Changes nothing; takes each step by itself."""

    def add_step(self, key, values, *, env_t):
        super().add_step(key, values, env_t=env_t)


class Informing(gymnasium.Env[Any, Any]):
    """Counts its steps in its observation and in a tree of informations; an episode has three steps."""

    observation_space = spaces.Dict(time=spaces.Box(0, 99, (), np.int64))
    action_space = spaces.Discrete(99)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {"time": np.int64(0)}, {}

    def step(self, action):
        self.time += 1
        parts = {"half": self.time / 2, "whole": np.full(3, self.time, np.uint8)}
        wind = np.full(2, 10 + self.time, np.float32)
        info = {"lives": self.time, "wind": wind, "parts": parts, "name": "not an array"}
        return {"time": np.int64(self.time)}, 1.0, self.time == 3, False, info


class Watching:
    """Keeps what it saw."""

    version = 5

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def compute_actions(self, input_dict):
        self.seen.append(input_dict)
        return 7 + input_dict["observation"]["time"]


@st.composite
def views_of_info(draw):
    """Views of some entries, of which the policy sees those with a space."""
    views = {}
    for index in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(sorted(ENTRIES)))
        shift = draw(st.sampled_from([-1, -2, [-1, -3], "-2:-1", 0, [0, -1]]))
        is_seen = shift not in (0, [0, -1])
        space = ENTRIES[path] if is_seen or draw(st.booleans()) else None
        views[f"view {index}"] = hr.View(path, space, shift=shift, mask=draw(st.booleans()))
    return views


def collected(sample_collector: Any, length: int, *views: dict[str, hr.View], **options: Any) -> list[Any]:
    """Returns what the policy saw and what was sampled, with other views after every second sample."""
    policy, batches = Watching(), []
    with worker(
        Informing,
        policy,
        num_envs=2,
        rollout_fragment_length=length,
        sample_collector=sample_collector,
        **options,
    ) as made:
        for current in views:
            made.views.clear()
            made.views.update(current)
            batches += [made.sample().data for _ in range(2)]
    return policy.seen + batches


@settings(max_examples=12, deadline=None)
@given(views_of_info(), views_of_info(), st.integers(1, 4))
def test_views_of_info_are_the_same(first: Any, second: Any, length: int):
    for one, other in zip(
        collected(None, length, first, second), collected(Stepwise, length, first, second), strict=True
    ):
        check_same(one, other)


NUMBERS = ("t", "env_t", "episode_id", "env_id", "fragment_id", "agent_index", "policy_version")


@pytest.mark.parametrize("options", [{}, {"horizon": 2, "soft_horizon": True}, {"max_seq_len": 2}])
@pytest.mark.parametrize("length", [2, 5])
def test_views_of_bookkeeping_are_the_same(length: int, options: dict[str, Any]):
    # R10
    views = {f"last {name}": hr.View(name, shift=[-1, 0], mask=True) for name in NUMBERS}
    one = collected(None, length, views, **options)
    other = collected(Stepwise, length, views, **options)
    for mine, its in zip(one, other, strict=True):
        check_same(mine, its)
    batches = [batch for batch in other if "t" in batch]
    assert len(batches) == 2
    for batch in batches:
        assert all(np.array_equal(batch[f"last {name}"][:, 1], batch[name]) for name in NUMBERS)
    assert any(batch["t"].any() for batch in batches)


def check_same(one: Any, other: Any, path: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for name in one:
            check_same(one[name], other[name], f"{path}/{name}")
    else:
        np.testing.assert_array_equal(one, other, err_msg=path)
        assert one.dtype == other.dtype, path


class Trees(gymnasium.Env[Any, Any]):
    """Observes the time in a tuple; an episode has five steps."""

    observation_space = spaces.Tuple(
        (spaces.Box(0, 99, (2,), np.int64), spaces.Dict(a=spaces.Box(0, 99, (), np.float32)))
    )
    action_space = spaces.Tuple(
        (spaces.Discrete(100), spaces.Dict(move=spaces.Box(-99, 99, (3,), np.float32)))
    )

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        return self._seen(), 1.0, self.time == 5, False, {}

    def _seen(self):
        return np.full(2, self.time, np.int64), {"a": np.float32(self.time + 0.5)}


def one_more(input_dict: Any) -> Any:
    """Acts with the time plus one."""
    times = input_dict["observation"][0][:, 0]
    move = np.repeat(times[:, None] + 1, 3, 1).astype(np.float32)
    return (times + 1, {"move": move}), [], {"twice": 2 * times}


@pytest.mark.parametrize("sample_collector", [None, Stepwise])
@pytest.mark.parametrize(("length", "longest"), [(1, None), (4, 3), (7, 2)])
def test_trees_in_tuples_look_back_further_than_sequences_are_long(
    sample_collector: Any, length: int, longest: int | None
):
    # V7, V14, V15, R8, R11: in closed form
    policy = Watching()
    policy.compute_actions = lambda seen: policy.seen.append(seen) or one_more(seen)  # type: ignore[method-assign]
    views = {
        "prev": hr.View("action", shift=-1),
        "moves": hr.View("action/1/move", shift="-6:-1", mask=True),
        "a": hr.View("observation/1/a", shift="-7:0:2", fill="edge"),
        "first": hr.View("observation/0", shift=[0, -3], fill=4),
        "twice before": hr.View("twice", spaces.Discrete(99), shift=-2),
    }
    with worker(
        Trees, policy, views=views, rollout_fragment_length=length, max_seq_len=longest,
        sample_collector=sample_collector,
    ) as made:  # fmt: skip
        batches = [made.sample() for _ in range(14 // length)]
    times = np.concatenate([batch["t"] for batch in batches])
    assert times.tolist() == [i % 5 for i in range(len(times))]
    of_moves, of_a = times[:, None] + np.arange(-6, 0), times[:, None] + np.arange(-7, 1, 2)
    known = np.where(of_moves >= 0, of_moves + 1, 0)[..., None]
    for shown in (batches, policy.seen):
        check_same(_joined(shown, "prev", 0), times)
        assert (_joined(shown, "prev", 1, "move") == times[:, None]).all()
        assert (_joined(shown, "moves") == known).all()
        assert np.array_equal(_joined(shown, "moves_mask"), of_moves >= 0)
        assert np.array_equal(_joined(shown, "a"), np.maximum(of_a, 0) + 0.5)
        assert (_joined(shown, "first")[:, 1] == np.where(times >= 3, times - 3, 4)[:, None]).all()
        assert np.array_equal(_joined(shown, "twice before"), 2 * np.maximum(times - 2, 0))


def _joined(shown: list[Any], *path: Any) -> Any:
    parts = []
    for batch in shown:
        part = batch
        for key in path:
            part = part[key]
        parts.append(part)
    return np.concatenate(parts)
