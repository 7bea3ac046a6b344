"""The settings of a rollout worker."""

# Rules: views-rollouts R15

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.checks import check_count

_BATCH_MODES = ("truncate_episodes", "complete_episodes")
_COUNT_STEPS_BY = ("env_steps", "agent_steps")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a rollout worker; see `RolloutWorker`.

    Raises:
        ValueError: a value that is not legal; the message has the legal ones.
    """

    batch_mode: str
    rollout_fragment_length: int
    count_steps_by: str
    num_envs: int
    horizon: int | None
    soft_horizon: bool
    no_done_at_end: bool
    max_seq_len: int | None
    seed: int | None
    worker_index: int

    def __post_init__(self) -> None:
        _check_choice("batch_mode", self.batch_mode, _BATCH_MODES)
        _check_choice("count_steps_by", self.count_steps_by, _COUNT_STEPS_BY)
        check_count("rollout_fragment_length", self.rollout_fragment_length, 1)
        check_count("num_envs", self.num_envs, 1)
        for name, value in (("horizon", self.horizon), ("max_seq_len", self.max_seq_len)):
            if value is not None:
                check_count(name, value, 1)
        if self.seed is not None:
            check_count("seed", self.seed, 0)
        check_count("worker_index", self.worker_index, 0)
        if self.soft_horizon and self.horizon is None:
            raise ValueError("soft_horizon: expected a horizon with it, got horizon=None")

    @cached_property
    def takes_whole_episodes(self) -> bool:
        """Whether a batch is whole episodes."""
        return self.batch_mode == "complete_episodes"

    @cached_property
    def fragment_units(self) -> int:
        """The steps, or episodes, that each environment brings for a batch."""
        return 1 if self.takes_whole_episodes else self.rollout_fragment_length

    @cached_property
    def counts_agent_steps(self) -> bool:
        """Whether a fragment's length counts the steps of agents."""
        return self.count_steps_by == "agent_steps"


def check_count_steps_by(value: Any) -> None:
    """Raises ValueError for anything but a unit in which steps are counted."""
    _check_choice("count_steps_by", value, _COUNT_STEPS_BY)


def _check_choice(name: str, value: Any, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, legal))}, got {value!r}")
