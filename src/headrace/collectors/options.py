"""The arguments of a collector, checked once (collectors CR1, CR3, CR13)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.replay.rules import ItemRule


@dataclass(frozen=True, kw_only=True)
class CollectorOptions:
    """What every collector is asked for; see `Collector` for the meaning of each."""

    create_env_fn: Any
    policy: Callable[..., Any] | None
    policy_factory: Callable[[], Any] | None
    frames_per_batch: int
    total_frames: int
    create_env_kwargs: Mapping[str, Any] | None
    max_frames_per_traj: int | None
    init_random_frames: int | None
    replay_buffer: Any
    items: Sequence[ItemRule] | None
    num_envs: int
    seed: int | None

    def __post_init__(self) -> None:
        if self.policy is not None and self.policy_factory is not None:
            raise TypeError("policy, policy_factory: expected one of them, got both")
        for name in ("policy", "policy_factory"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"{name}: expected a callable, got {type(value).__name__}")
        frames = self.frames_per_batch
        if not _is_int(frames) or frames < 1:
            raise ValueError(f"frames_per_batch: expected a positive int, got {frames!r}")
        self._check_total()
        if self.items is not None and self.replay_buffer is None:
            raise ValueError("items: expected only together with replay_buffer")

    def _check_total(self) -> None:
        total, frames = self.total_frames, self.frames_per_batch
        if not _is_int(total) or (total != -1 and total < 1):
            raise ValueError(f"total_frames: expected -1 (no end) or a positive int, got {total!r}")
        if total > 0 and total % frames:
            below, above = total // frames * frames, -(-total // frames) * frames
            near = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"total_frames: expected a multiple of frames_per_batch={frames}, got {total}; the nearest is {near}"
            )

    @property
    def random_frames(self) -> int:
        """Frames before which actions are random."""
        return max(0, self.init_random_frames or 0)

    def steps(self, num_envs: int) -> int:
        """T: steps of `num_envs` copies that make a batch (collectors CR1); warns where they make more frames."""
        steps = -(-self.frames_per_batch // num_envs)
        if steps * num_envs != self.frames_per_batch:
            warnings.warn(
                f"frames_per_batch={self.frames_per_batch} is no multiple of {num_envs} environments: "
                f"a batch has {steps * num_envs} frames",
                UserWarning,
                stacklevel=4,
            )
        return steps

    def rules(self, replay: Any) -> list[ItemRule]:
        """Which items the rows become: by default every transition one of each table (collectors CF2)."""
        if self.items is not None:
            return list(self.items)
        return [ItemRule(name, length=1) for name in replay.table_names]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
