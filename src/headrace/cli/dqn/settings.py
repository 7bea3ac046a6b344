"""The hyperparameters. The command has an option for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class DqnSettings:
    """Hyperparameters of the DQN. The defaults are for vector observations; `IMAGE_SETTINGS` are for images.

    Raises:
        ValueError: a number is outside its range; the text names its option.

    >>> DqnSettings(batch_size=64).batch_size
    64
    """

    gamma: float = _setting(0.99, "Discount of one step.")
    n_step: int = _setting(3, "Steps of the n-step return.")
    learning_rate: float = _setting(1e-3, "Learning rate of Adam at the start; it falls linearly to a tenth.")
    batch_size: int = _setting(128, "Items per batch.")
    samples_per_insert: float = _setting(32.0, "How often each transition is sampled, on average.")
    replay_size: int = _setting(50_000, "The most transitions kept.")
    learning_starts: int = _setting(1_000, "Transitions before the first update and before epsilon falls.")
    epsilon_start: float = _setting(1.0, "Share of random actions at the start.")
    epsilon_end: float = _setting(0.02, "Share of random actions at the end.")
    epsilon_frames: int = _setting(10_000, "Frames over which epsilon falls, linearly.")
    target_every: int = _setting(25, "Updates between two copies of the weights to the target network.")
    publish_every: int = _setting(10, "Updates between two publications of weights to the worker.")
    priority_exponent: float = _setting(0.6, "Exponent of priorities; 0 samples uniformly.")
    importance_exponent: float = _setting(
        0.4, "Exponent of the importance weights at the start; it rises linearly to 1."
    )
    largest_priority: float = _setting(10.0, "Priority of new items, and the bound of all priorities.")
    hidden_units: int = _setting(256, "Width of the hidden layers.")
    max_grad_norm: float = _setting(10.0, "Gradients are scaled down to this norm.")
    rollout_steps: int = _setting(8, "Steps of each environment in a rollout of the worker.")
    frame_stack: int = _setting(4, "Frames in one input of the network; for images only.")

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            self._check(name, getattr(self, name) >= 1, ">= 1")
        for name in _ABOVE_ZERO:
            self._check(name, getattr(self, name) > 0, "> 0")
        for name in _SHARES:
            self._check(name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        self._check("priority_exponent", self.priority_exponent >= 0, ">= 0")
        self._check(
            "learning_starts",
            self.learning_starts <= self.replay_size,
            f"<= {self.replay_size} (replay_size)",
        )

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"--{name.replace('_', '-')}: expected {expected}, got {getattr(self, name)}")


_AT_LEAST_ONE = (
    "n_step", "batch_size", "replay_size", "learning_starts", "epsilon_frames", "target_every", "publish_every",
    "hidden_units", "rollout_steps", "frame_stack",
)  # fmt: skip
_ABOVE_ZERO = ("learning_rate", "samples_per_insert", "largest_priority", "max_grad_norm")
_SHARES = ("gamma", "epsilon_start", "epsilon_end", "importance_exponent")

VECTOR_SETTINGS = DqnSettings()
IMAGE_SETTINGS = DqnSettings(
    learning_rate=1e-4,
    batch_size=32,
    samples_per_insert=8.0,
    replay_size=100_000,
    learning_starts=5_000,
    epsilon_frames=100_000,
    target_every=2_000,
    largest_priority=1.0,
    hidden_units=512,
)
