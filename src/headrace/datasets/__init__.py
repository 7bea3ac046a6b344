"""Episodes in files: Minari, Parquet and npz, written and read without loss; D4RL and LeRobot, read."""

from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.foreign.public import load_d4rl, load_lerobot
from headrace.datasets.minari.public import load_minari, save_minari
from headrace.datasets.npz.public import load_npz, save_npz
from headrace.datasets.parquet.public import load_parquet, save_parquet

if TYPE_CHECKING:
    from headrace.datasets.filled_replay import to_replay as to_replay
    from headrace.datasets.stored_episodes import episodes as episodes

__all__ = [
    "EpisodeDataset",
    "episodes",
    "load_d4rl",
    "load_lerobot",
    "load_minari",
    "load_npz",
    "load_parquet",
    "save_minari",
    "save_npz",
    "save_parquet",
    "to_replay",
]


# Hidden from type checkers, which would take every name for an attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # These load the kernels of a replay, which the formats do not need.
        if name == "episodes":
            from headrace.datasets.stored_episodes import episodes

            return episodes
        if name == "to_replay":
            from headrace.datasets.filled_replay import to_replay

            return to_replay
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
