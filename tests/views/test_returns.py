"""Sums of rewards of every dtype that a record can hold (views V18)."""

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import SpecError
from headrace.views import transition
from headrace.views.returns import KINDS


def replay_of(reward: Any, terminated: Any) -> hr.Replay:
    """Six steps with the rewards 1 to 6, of which the third is terminal."""
    example = {"observation": 0, "action": 0, "reward": reward, "terminated": terminated, "truncated": False}
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9, max_times_sampled=1
    )
    replay = hr.Replay(hr.Signature.like(example), [table], seed=0)
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for time in range(6):
            step = {"reward": reward.dtype.type(time + 1), "terminated": terminated.dtype.type(time == 2)}
            writer.append({"observation": time, "action": 0, "truncated": False, **step})
            if time == 2:
                writer.end_episode({"observation": -1})
    return replay


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize("dtype", [*KINDS, "?"])
def test_rewards_and_flags_of_every_dtype(dtype: str) -> None:
    number = np.zeros((), dtype)
    rewards = np.arange(1, 7).astype(dtype).astype(np.float64)
    for reward, terminated in ((number, np.bool_(False)), (np.float64(0), number)):
        with replay_of(reward, terminated) as replay:
            data = replay.sample("t", 6, views=transition(2, 0.5)).data
        each = rewards if reward is number else np.arange(1.0, 7.0)
        expected = [each[0] + each[1] / 2, each[1] + each[2] / 2, each[2], each[3] + each[4] / 2, each[4], 0]
        assert data["reward"].tolist() == expected
        assert data["discount"].tolist() == [0.25, 0, 0, 0.25, 0.5, 0]
        wanted = np.dtype(dtype) if reward is number and number.dtype.kind == "f" else np.float64
        assert data["reward"].dtype == data["discount"].dtype == wanted


@pytest.mark.parametrize("dtype", [np.float16, np.complex64])
@pytest.mark.parametrize("column", ["reward", "terminated"])
def test_other_dtypes_are_refused_by_name(column: str, dtype: Any) -> None:
    columns: dict[str, Any] = {"reward": np.float32(0), "terminated": np.bool_(False)}
    columns[column] = np.zeros((), dtype)
    with (
        replay_of(**columns) as replay,
        pytest.raises(SpecError, match=f"expected a {column} of float32, float64, integer or bool"),
    ):
        replay.sample("t", 1, views=transition())


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize("n_step", [7, 10_000, 2**40, 2**63 - 1])
def test_returns_to_the_end_of_the_episode_cost_as_much_as_it_has_steps(n_step: int) -> None:
    with replay_of(np.float64(0), np.bool_(False)) as replay:
        data = replay.sample("t", 6, views=transition(n_step, 1.0)).data
    assert data["reward"].tolist() == [6, 5, 3, 9, 5, 0]
    assert data["n"].tolist() == [3, 2, 1, 2, 1, 0]
