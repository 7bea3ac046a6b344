"""Working sets: small steps and frames that tell who they are, so that every batch can be checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headrace as hr

LANES = 64
EPISODE = 200
BATCH = 256


def small_signature() -> hr.Signature:
    """30 bytes a step."""
    return hr.Signature.like(
        {
            "observation": np.zeros(4, np.float32),
            "action": np.int64(0),
            "reward": np.float32(0),
            "terminated": np.bool_(False),
            "truncated": np.bool_(False),
        }
    )


def table(max_size: int, sampler: Any = None) -> hr.Table:
    return hr.Table(
        "t", sampler=sampler or hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=max_size
    )


def vector_step(time: int, lanes: int = LANES) -> dict[str, NDArray[Any]]:
    """Step `time` of every lane: the observation tells lane and time, the action the lane, the reward the time."""
    observation = np.zeros((lanes, 4), np.float32)
    observation[:, 0] = np.arange(lanes)
    observation[:, 1] = time
    terminated = np.full(lanes, time % EPISODE == EPISODE - 1)
    return {
        "observation": observation,
        "action": np.arange(lanes),
        "reward": np.full(lanes, time, np.float32),
        "terminated": terminated,
        "truncated": np.zeros(lanes, np.bool_),
    }


def final_observation(time: int, lanes: int = LANES) -> dict[str, NDArray[Any]]:
    """What follows the step before `time`, where an episode ended."""
    return {"observation": vector_step(time, lanes)["observation"]}


def fill(writer: Any, steps: int, lanes: int = LANES) -> None:
    """Append at least `steps` steps in episodes of `EPISODE`, with final rows."""
    step = vector_step(0, lanes)
    for time in range(-(-steps // lanes)):
        step["observation"][:, 1] = time
        step["reward"][:] = time
        ends = time % EPISODE == EPISODE - 1
        step["terminated"][:] = ends
        writer.append(step)
        if ends:
            writer.end_episode(final_observation(time + 1, lanes))


@contextmanager
def filled(steps: int, sampler: Any = None, length: int = 1, **rule: Any) -> Iterator[hr.Replay]:
    """A replay of so many small steps, all of them reached by items."""
    replay = hr.Replay(small_signature(), [table(steps, sampler)], seed=0)
    with replay, replay.writer(lanes=LANES, items=[hr.ItemRule("t", length, **rule)]) as writer:
        fill(writer, steps)
        yield replay


def check_transitions(data: dict[str, Any]) -> None:
    """That every column is of the same step, and the next observation of the step after."""
    observation, after = data["observation"], data["next_observation"]
    lane, time = observation[:, 0], observation[:, 1]
    _expect((lane == data["action"]).all(), "actions are of other steps")
    _expect((time == data["reward"]).all(), "rewards are of other steps")
    _expect(((time % EPISODE == EPISODE - 1) == data["terminated"]).all(), "flags are of other steps")
    _expect((after[:, 0] == lane).all(), "next observations are of other lanes")
    _expect((after[:, 1] == time + 1).all(), "next observations are of other steps")
    _expect(len(np.unique(lane * 1e6 + time)) > len(lane) // 2, "a batch repeats itself")


def check_sequences(data: dict[str, Any]) -> None:
    """That rows of a window follow one another, in one lane and one episode."""
    lane, time = data["observation"][..., 0], data["observation"][..., 1]
    _expect((lane == data["action"]).all(), "actions are of other steps")
    _expect((time == data["reward"]).all(), "rewards are of other steps")
    _expect((np.diff(lane, axis=1) == 0).all(), "a window has rows of several lanes")
    _expect((np.diff(time, axis=1) == 1).all(), "a window has gaps")
    _expect((time[:, 0] // EPISODE == time[:, -1] // EPISODE).all(), "a window spans two episodes")


def _expect(holds: Any, wrong: str) -> None:
    if not holds:
        raise AssertionError(wrong)


class PlainSteps:
    """The same steps in plain arrays: what the limits copy from."""

    def __init__(self, steps: int) -> None:
        self.size = -(-steps // LANES) * LANES
        # One vector step more, so that every row has a next one.
        rows = self.size + LANES
        time = np.arange(rows) // LANES
        observation = np.zeros((rows, 4), np.float32)
        observation[:, 0] = np.arange(rows) % LANES
        observation[:, 1] = time
        self.columns: dict[str, NDArray[Any]] = {
            "observation": observation,
            "action": (np.arange(rows) % LANES).astype(np.int64),
            "reward": time.astype(np.float32),
            "terminated": time % EPISODE == EPISODE - 1,
            "truncated": np.zeros(rows, np.bool_),
        }

    def buffers(self, *leading: int) -> dict[str, NDArray[Any]]:
        """Outputs that are kept."""
        out = {
            name: np.empty(leading + column.shape[1:], column.dtype) for name, column in self.columns.items()
        }
        out["next_observation"] = np.empty_like(out["observation"])
        return out

    def take(self, rows: NDArray[np.int64], out: dict[str, NDArray[Any]]) -> None:
        """All columns of these rows."""
        for name, column in self.columns.items():
            np.take(column, rows, axis=0, out=out[name], mode="clip")

    def take_next(self, rows: NDArray[np.int64], out: dict[str, NDArray[Any]]) -> None:
        """The observations that follow."""
        np.take(self.columns["observation"], rows + LANES, axis=0, out=out["next_observation"], mode="clip")
