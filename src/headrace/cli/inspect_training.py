"""The folder that `headrace train` wrote, as `headrace inspect` tells it: returns and lengths, no steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.cli import episodes
from headrace.cli.export_source import Source
from headrace.cli.inspect_contents import Contents, EpisodeRow

POLICY, TABLE = "policy.pt", "episodes.csv"


def is_training(folder: Path) -> bool:
    """Whether the files of `headrace train` are there."""
    return (folder / POLICY).is_file() and (folder / TABLE).is_file()


def read_training(name: str) -> tuple[Source, Contents]:
    """The episodes of a training run, and what the policy's file says of it.

    Raises:
        DatasetError, CheckpointError: a file cannot be read.
        ImportError: torch is missing.
    """
    from headrace.cli.dqn import checkpoint

    folder = Path(name)
    about: dict[str, Any] = checkpoint.about(folder / POLICY)
    ended = episodes.read_csv(folder / TABLE)
    rows = [
        EpisodeRow(index, each.episode_id, None, each.length, each.return_, each.terminated, each.truncated)
        for index, each in enumerate(ended)
    ]
    told = {key: value for key, value in about.get("result", {}).items() if key != "episodes"}
    metadata = {**told, "settings": about.get("settings", {})}
    return Source(name=name, kind="training", episodes=(), metadata=metadata), Contents({}, rows, None)
