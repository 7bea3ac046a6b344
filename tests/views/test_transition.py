"""n-step transitions and frame stacks from stored rows (views V18)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.errors import SpecError
from headrace.views import transition

NAMES = {"observation", "action", "reward", "next_observation", "terminated", "truncated", "discount", "n"}


def feed(
    rewards: list[float],
    end: str,
    *,
    dtype: Any = np.float32,
    rule: hr.ItemRule | None = None,
    capacity: int | None = None,
    before: int = 3,
) -> hr.Replay:
    """One episode between two others: observations 10, 11, ...; it ends terminal, truncated, cut off, or not at all."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=10_000, max_times_sampled=1
    )
    example = {"observation": 0, "action": 0, "reward": dtype(0), "terminated": False, "truncated": False}
    replay = hr.Replay(hr.Signature.like(example), [table], capacity=capacity, seed=0)
    writer = replay.writer(items=[rule or hr.ItemRule("t", 1)])

    def step(t: int, reward: float, first: int, terminated: bool = False, truncated: bool = False) -> None:
        writer.append(
            {
                "observation": first + t,
                "action": first + 90 + t,
                "reward": dtype(reward),
                "terminated": terminated,
                "truncated": truncated,
            }
        )

    for t in range(before):
        step(t, 50, 1000)
    if before:
        writer.end_episode({"observation": 1999})
    for t, reward in enumerate(rewards):
        last = t == len(rewards) - 1
        step(t, reward, 10, last and end == "terminal", last and end in ("truncated", "cut"))
    if end in ("terminal", "truncated"):
        writer.end_episode({"observation": 10 + len(rewards)})
    elif end in ("cut", "cut terminal"):
        writer.end_episode()
    if end != "open":
        for t in range(4):
            step(t, 70, 5000)
    writer.close()
    return replay


def sample(replay: hr.Replay, count: int, views: dict[str, hr.View], skip: int = 3) -> dict[str, Any]:
    if skip:
        replay.sample("t", skip)
    return replay.sample("t", count, views=views, timeout=0).data


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize(
    ("end", "reward", "discount", "n"),
    [
        ("terminal", [1.75, 1.75, 1.75, 1.5, 1], [0.125, 0.125, 0, 0, 0], [3, 3, 3, 2, 1]),
        ("truncated", [1.75, 1.75, 1.75, 1.5, 1], [0.125, 0.125, 0.125, 0.25, 0.5], [3, 3, 3, 2, 1]),
        # The last observation was never seen: the true exponent is in the batch, and the last row has no transition.
        ("cut", [1.75, 1.75, 1.5, 1, 0], [0.125, 0.125, 0.25, 0.5, 0], [3, 3, 2, 1, 0]),
        ("open", [1.75, 1.75, 1.5, 1, 0], [0.125, 0.125, 0.25, 0.5, 0], [3, 3, 2, 1, 0]),
    ],
)
def test_worked_example(end: str, reward: list[float], discount: list[float], n: list[int]):
    """V18: rewards 1 1 1 1 1, gamma 0.5, n_step 3."""
    with feed([1, 1, 1, 1, 1], end) as replay:
        data = sample(replay, 5, transition(3, 0.5))
        assert set(data) == NAMES
        assert data["observation"].tolist() == [10, 11, 12, 13, 14]
        assert data["action"].tolist() == [100, 101, 102, 103, 104]
        assert data["reward"].tolist() == reward
        assert data["discount"].tolist() == discount
        assert data["n"].tolist() == n
        assert data["next_observation"].tolist() == [10 + t + m for t, m in enumerate(n)]
        ends = [t + m == 5 for t, m in enumerate(n)]
        assert data["terminated"].tolist() == [end == "terminal" and each for each in ends]
        assert data["truncated"].tolist() == [end == "truncated" and each for each in ends]


def closed_form(
    rewards: list[float], end: str, t: int, n_step: int, gamma: float, stack: int, dtype: Any
) -> dict[str, Any]:
    """V18 for one row, word for word. A terminal step counts also when its observation was never given."""
    steps = len(rewards)
    seen = steps if end in ("terminal", "truncated") else steps - 1
    m = min(n_step, seen - t)
    following = 10 + t + m
    total = 0.0
    for k in range(m):
        total += gamma**k * dtype(rewards[t + k])
    frames = [10 + max(0, each) for each in range(t - stack + 1, t + 1)]
    next_frames = [10 + max(0, each) for each in range(t + m - stack + 1, t + m + 1)]
    ends = t + m == steps
    return {
        "observation": frames if stack > 1 else frames[-1],
        "action": 100 + t,
        "reward": total,
        "next_observation": next_frames if stack > 1 else following,
        "terminated": ends and m > 0 and end == "terminal",
        "truncated": ends and m > 0 and end == "truncated",
        "discount": 0.0 if m == 0 or (ends and end == "terminal") else gamma**m,
        "n": m,
    }


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@settings(max_examples=fewer(60))
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=9),
    st.sampled_from(["terminal", "truncated", "cut", "open"]),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    st.integers(1, 4),
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
    st.sampled_from([None, 64, 160]),
)
def test_every_start_equals_the_closed_form(
    rewards: list[float], end: str, n_step: int, gamma: float, stack: int, dtype: Any, capacity: int | None
):
    """V18: every start is legal, the last n - 1 included; pages and other episodes make no difference."""
    with feed(rewards, end, dtype=dtype, capacity=capacity) as replay:
        data = sample(replay, len(rewards), transition(n_step, gamma, frame_stack=stack))
    wanted_dtype = dtype if np.dtype(dtype).kind == "f" else np.float64
    assert data["reward"].dtype == data["discount"].dtype == wanted_dtype
    assert data["n"].dtype == np.int64
    assert data["terminated"].dtype == data["truncated"].dtype == np.bool_
    for t in range(len(rewards)):
        for name, value in closed_form(rewards, end, t, n_step, gamma, stack, dtype).items():
            np.testing.assert_allclose(data[name][t], value, rtol=1e-6, err_msg=f"{name} of row {t}")


def test_terminal_step_without_a_final_observation_counts():
    """V18: nothing is bootstrapped after a termination, so its reward counts though nothing is known after it."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1
    )
    example = {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    for is_ended in (False, True):
        with hr.Replay(hr.Signature.like(example), [table]) as replay:
            with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
                for t in range(3):
                    writer.append({**example, "observation": t, "reward": 1.0, "terminated": t == 2})
                if is_ended:
                    writer.end_episode()
            data = replay.sample("t", 3, views=transition(2, 0.5)).data
            assert data["reward"].tolist() == [1.5, 1.5, 1.0]
            assert data["discount"].tolist() == [0.25, 0, 0]
            assert data["n"].tolist() == [2, 2, 1]
            assert data["terminated"].tolist() == [False, True, True]
            assert data["next_observation"][0] == 2


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_with_final_rows_beside(lanes: int):
    """V18: the final row of a lane that ends alone is the next observation of its last transition."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=99, max_times_sampled=1
    )
    example = {"observation": 0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(example), [table]) as replay:
        with replay.writer(lanes, items=[hr.ItemRule("t", 1)]) as writer:
            for t in range(4):
                flags = np.zeros(lanes, bool)
                writer.append(
                    {
                        "observation": 100 * np.arange(lanes) + t,
                        "action": np.zeros(lanes, int),
                        "reward": np.ones(lanes),
                        "terminated": flags,
                        "truncated": flags,
                    }
                )
                if t == 1:
                    writer.end_episode({"observation": 77}, lane=1)
        data = replay.sample("t", 4 * lanes, views=transition(2, 0.5, frame_stack=2)).data
        following = data["next_observation"].reshape(4, lanes, 2)
        assert following[:, 1].tolist() == [[101, 77], [101, 77], [102, 103], [102, 103]]
        assert following[:, 0].tolist() == [[1, 2], [2, 3], [2, 3], [2, 3]]
        assert data["n"].reshape(4, lanes)[:, 1].tolist() == [2, 1, 1, 0]
        assert data["n"].reshape(4, lanes)[:, 0].tolist() == [2, 2, 1, 0]


def test_sequences_are_presented_row_by_row():
    """V16, V18: `[B, L]`; a final row has no transition, a padded row is nothing."""
    rule = hr.ItemRule("t", 4, stride=4, end=hr.EndOfEpisode.PAD)
    with feed([1, 1, 1, 1, 1], "terminal", rule=rule, before=0) as replay:
        views = {**transition(2, 0.5, frame_stack=2), "plain": hr.View("observation", mask=True)}
        data = sample(replay, 2, views, skip=0)
        assert data["reward"].tolist() == [[1.5, 1.5, 1.5, 1.5], [1, 0, 0, 0]]
        assert data["discount"].tolist() == [[0.25, 0.25, 0.25, 0], [0, 0, 0, 0]]
        assert data["n"].tolist() == [[2, 2, 2, 2], [1, 0, 0, 0]]
        assert data["terminated"].tolist() == [[False, False, False, True], [True, False, False, False]]
        assert data["next_observation"].shape == (2, 4, 2)
        assert data["next_observation"][0].tolist() == [[11, 12], [12, 13], [13, 14], [14, 15]]
        assert data["next_observation"][1].tolist() == [[14, 15], [14, 15], [0, 0], [0, 0]]
        assert data["plain_mask"].tolist() == [[True] * 4, [True, True, False, False]]
        assert data["action"][1].tolist() == [104, 0, 0, 0]


def test_tree_observations_are_stacked_leaf_by_leaf():
    """V5, V18: a Dict observation stays one."""
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1
    )
    example = {
        "observation": {"camera": np.zeros((2, 3), np.uint8), "speed": np.float32(0)},
        "action": 0, "reward": np.float32(0), "terminated": False, "truncated": False,
    }  # fmt: skip

    def observation(t: int) -> dict[str, Any]:
        return {"camera": np.full((2, 3), t, np.uint8), "speed": np.float32(t)}

    with hr.Replay(hr.Signature.like(example), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for t in range(1, 4):
                writer.append({**example, "observation": observation(t), "reward": np.float32(1)})
            writer.end_episode({"observation": observation(4)})
        data = replay.sample("t", 3, views=transition(2, 1.0, frame_stack=3)).data
        assert data["observation"]["camera"].shape == (3, 3, 2, 3)
        assert data["observation"]["speed"].tolist() == [[1, 1, 1], [1, 1, 2], [1, 2, 3]]
        assert data["next_observation"]["speed"].tolist() == [[1, 2, 3], [2, 3, 4], [2, 3, 4]]
        assert data["next_observation"]["camera"][:, -1, 0, 0].tolist() == [3, 4, 4]
        assert data["next_observation"]["speed"].dtype == np.float32


def test_the_same_rows_under_several_depths():
    """V16: changing a stack depth or n needs no new data; several may stand side by side."""
    with feed([1, 2, 4, 8], "truncated") as replay:
        views = {f"{name}{n}": view for n in (1, 3) for name, view in transition(n, 0.5).items()}
        data = sample(replay, 4, views)
        assert data["reward1"].tolist() == [1, 2, 4, 8]
        assert data["reward3"].tolist() == [3, 6, 8, 8]
        assert data["next_observation1"].tolist() == [11, 12, 13, 14]
        assert data["next_observation3"].tolist() == [13, 14, 14, 14]


def test_lookahead_keeps_what_a_transition_needs():
    """V17: an item with a lookahead of n is sampleable when its transition is whole, and stays whole."""
    rule = hr.ItemRule("t", 1, lookahead=3)
    with feed([1, 1, 1, 1, 1], "open", rule=rule, capacity=64, before=0) as replay:
        assert len(replay.table("t")) == 2
        data = sample(replay, 2, transition(3, 0.5), skip=0)
        assert data["n"].tolist() == [3, 3]
        assert data["next_observation"].tolist() == [13, 14]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n_step": 0}, ValueError), ({"n_step": -1}, ValueError), ({"n_step": 1.5}, TypeError),
        ({"n_step": True}, TypeError), ({"frame_stack": 0}, ValueError), ({"frame_stack": 2.0}, TypeError),
        ({"gamma": -0.1}, ValueError), ({"gamma": 1.01}, ValueError), ({"gamma": float("nan")}, ValueError),
    ],
)  # fmt: skip
def test_arguments(arguments: dict[str, Any], error: type[Exception]):
    with pytest.raises(error, match=next(iter(arguments))):
        transition(**arguments)


@pytest.mark.parametrize(
    "missing",
    ["observation", "action", "reward", "terminated", "truncated", "scalar reward", "float16 reward"],
)
def test_columns_that_a_transition_needs(missing: str):
    """V10: SpecError, naming the column."""
    example = {
        "observation": 0,
        "action": 0,
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
        "other": 0,
    }
    if missing == "scalar reward":
        example["reward"] = np.zeros(2)
    elif missing == "float16 reward":
        example["reward"] = np.float16(0)
    else:
        del example[missing]
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like(example), [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(example)
        with pytest.raises(SpecError, match=missing.split()[-1]):
            replay.sample("t", 1, views=transition())
        assert len(replay.table("t")) == 1


@pytest.mark.parametrize("name", ["reward", "terminated", "discount", "n"])
def test_what_an_n_step_return_places_cannot_be_shifted(name: str):
    """V18: its rows are given by n_step."""
    signature = hr.Signature.like(
        {"reward": np.float32(0), "terminated": np.bool_(0), "truncated": np.bool_(0)}
    )
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(signature, [table]) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append(signature.zeros())
        for shift in (1, [0], "-1:0"):
            with pytest.raises(ValueError, match=f"view '{name}': shift: expected 0 in a view of an n-step"):
                replay.sample("t", 1, views={name: hr.views.transition(2)[name].replace(shift=shift)})


def test_two_views_of_one_sum_are_two_arrays():
    """Replay B4."""
    signature = hr.Signature.like(
        {"reward": np.float32(0), "terminated": np.bool_(0), "truncated": np.bool_(0)}
    )
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with (
        hr.Replay(signature, [table]) as replay,
        replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer,
    ):
        for _ in range(2):
            writer.append({**signature.zeros(), "reward": np.float32(2)})
        reward = hr.views.transition()["reward"]
        data = replay.sample("t", 3, views={"a": reward, "b": reward}, timeout=0).data
        data["a"][:] = 0
        assert data["b"].tolist() == [2, 2, 2]


def test_views_of_a_transition_may_be_changed_one_by_one():
    """They are views: comparable, and `replace` works."""
    views = transition(3, 0.9, frame_stack=4)
    assert views == transition(3, 0.9, 4)
    assert views != transition(2, 0.9, 4)
    with feed([1, 1, 1], "truncated") as replay:
        changed = {**transition(1), "next_observation": transition(1)["next_observation"].replace(mask=True)}
        data = sample(replay, 3, changed)
        assert data["next_observation_mask"].tolist() == [True, True, True]
