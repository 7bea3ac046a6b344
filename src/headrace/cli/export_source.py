"""What `headrace export` and `headrace inspect` read: a dataset of any format, or a replay that was saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.opening import holds_minari, open_dataset
from headrace.trajectories.episode import Episode


@dataclass(frozen=True, kw_only=True)
class Source:
    """An open source of episodes.

    Attributes:
        name: as the user gave it.
        kind: "minari", "parquet", "npz" or "replay".
        episodes: read in this order; of a replay it has `left_out`.
        metadata: what the dataset says about itself.
        observation_space, action_space: where it has them.
    """

    name: str
    kind: str
    episodes: Iterable[Episode]
    metadata: dict[str, Any]
    observation_space: Any = None
    action_space: Any = None

    @property
    def left_out(self) -> int:
        """Episodes of a replay that are not complete; known when all were read."""
        return getattr(self.episodes, "left_out", 0)


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a dataset by its path or Minari id, or a replay by the folder it was saved to.

    Raises:
        click.BadParameter: there is nothing of that name.
        DatasetError, CheckpointError: it cannot be read.
    """
    path = Path(name)
    if path.is_dir() and not holds_minari(path):
        with _open_replay(name) as source:
            yield source
        return
    try:
        dataset = open_dataset(name)
    except FileNotFoundError as error:
        # Without the argument's name, which each command has its own of.
        raise click.BadParameter(str(error)) from error
    with dataset:
        yield Source(
            name=name,
            kind=_kind(dataset),
            episodes=dataset,
            metadata=dataset.metadata,
            observation_space=dataset.observation_space,
            action_space=dataset.action_space,
        )


@contextmanager
def _open_replay(name: str) -> Iterator[Source]:
    from headrace.datasets.replay_episodes import episodes
    from headrace.replay import Replay

    with Replay.load(name) as replay:
        yield Source(name=name, kind="replay", episodes=episodes(replay), metadata={})


def _kind(dataset: EpisodeDataset) -> str:
    """The format, which the name of the module begins with."""
    return type(dataset).__module__.rpartition(".")[2].partition("_")[0]
