"""Folders of `headrace train`, as `headrace inspect` shows them: returns and lengths, without steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.cli import episodes
from headrace.cli.episode_source import Source
from headrace.cli.file_names import EPISODES, POLICY
from headrace.cli.inspect.contents import Contents, EpisodeRow


def is_training(folder: Path) -> bool:
    """Returns True if the folder has the files of `headrace train`."""
    return (folder / POLICY).is_file() and (folder / EPISODES).is_file()


def read_training(name: str) -> tuple[Source, Contents]:
    """Reads the episodes of a training run, and the metadata in the file of its policy.

    Raises:
        DatasetError, CheckpointError: a file cannot be read.
        ImportError: torch is missing.
    """
    from headrace.cli.dqn import checkpoint

    folder = Path(name)
    about: dict[str, Any] = checkpoint.about(folder / POLICY)
    rows = [
        EpisodeRow(index, each.episode_id, None, each.length, each.return_, each.terminated, each.truncated)
        for index, each in enumerate(episodes.read_csv(folder / EPISODES))
    ]
    result = {key: value for key, value in about.get("result", {}).items() if key != "episodes"}
    metadata = {**result, "settings": about.get("settings", {})}
    return Source(name=name, kind="training", episodes=(), metadata=metadata), Contents(
        {}, {}, [], {}, rows, None
    )
