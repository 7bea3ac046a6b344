"""Sources of episodes for `headrace export` and `headrace inspect`: datasets of all formats, and saved replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.file_names import DATASET
from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.opening import holds_dataset, open_dataset
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

if TYPE_CHECKING:
    from headrace.persist.checkpoint.stored import StoredCheckpoint
    from headrace.persist.disk.stored import StoredReplay

# Entries of a folder without episodes that the error names, at most.
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Source:
    """An open source of episodes.

    Attributes:
        name: as the user gave it.
        kind: "minari", "parquet", "npz", "d4rl", "lerobot", "replay", "store" or "training".
        episodes: in the order in which they are read.
        metadata: the metadata of the dataset.
        observation_space, action_space: None if unknown.
        env_spec: the gymnasium EnvSpec of the environment; None if unknown.
        tables: maps the name of each table to the number of its items; None if it is not a replay.
        stored: a checkpoint or a store on disk; None for other kinds.
        sizes: numbers of bytes of a store. They are not metadata of its episodes.
    """

    name: str
    kind: str
    episodes: Iterable[Episode]
    metadata: dict[str, Any]
    observation_space: Any = None
    action_space: Any = None
    env_spec: Any = None
    tables: Mapping[str, int] | None = None
    stored: StoredCheckpoint | StoredReplay | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """The number of incomplete episodes of a replay; known when all episodes were read."""
        return getattr(self.episodes, "left_out", 0)


@contextmanager
def open_source(name: str, **arguments: Any) -> Iterator[Source]:
    """Opens a dataset by its path or Minari id, or a replay by the folder of its store or of its checkpoints.

    A folder of `headrace collect` stands for the dataset in it.

    Args:
        name: of the source.
        arguments: see `open_dataset`.

    Raises:
        click.BadParameter: no source has this name.
        click.UsageError: an argument that the source has no use for.
        DatasetError, CheckpointError: the source cannot be read.
    """
    path = Path(name)
    if (path / DATASET).is_file():
        path = path / DATASET
    elif path.is_dir() and not holds_dataset(path):
        if arguments:
            raise click.UsageError(
                f"{_options(arguments)}: expected a dataset, got the folder of a replay or of a training run, {name}"
            )
        with _open_replay(path, name) as source:
            yield source
        return
    try:
        dataset = open_dataset(path if path.exists() else name, **arguments)
    except FileNotFoundError as error:
        # Without the name of the argument, which differs between commands.
        raise click.BadParameter(str(error)) from error
    except DatasetError:
        raise
    except ValueError as error:
        raise click.UsageError(f"{_options(arguments)}: {error}") from error
    with dataset:
        yield _of_dataset(name, dataset)


def _options(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in arguments)


def _of_dataset(name: str, dataset: EpisodeDataset) -> Source:
    from headrace.datasets.minari.env_spec import env_spec_from_json
    from headrace.datasets.minari.spaces import space_from_json

    metadata = dataset.metadata
    spaces = {
        key: getattr(dataset, key) or _parsed(space_from_json, metadata.get(key))
        for key in ("observation_space", "action_space")
    }
    env_spec = _parsed(lambda text: env_spec_from_json(text, "env_spec"), metadata.get("env_spec"))
    return Source(
        name=name, kind=dataset.format_name, episodes=dataset, metadata=metadata, env_spec=env_spec, **spaces
    )


def _parsed(parse: Callable[[str], Any], text: Any) -> Any:
    """Returns the result of `parse`; None for a value that neither `headrace collect` nor Minari writes."""
    if not isinstance(text, str):
        return None
    try:
        return parse(text)
    except (ValueError, TypeError, KeyError):
        return None


@contextmanager
def _open_replay(folder: Path, name: str) -> Iterator[Source]:
    from headrace.datasets.stored_episodes import episodes
    from headrace.persist.checkpoint.folders import candidates, is_checkpoint
    from headrace.persist.checkpoint.stored import StoredCheckpoint
    from headrace.persist.disk.stored import StoredReplay, is_store

    if is_store(folder):
        with StoredReplay(folder) as stored:
            yield Source(
                name=name,
                kind="store",
                episodes=episodes(stored),
                metadata={},
                tables=stored.tables,
                stored=stored,
                sizes=_sizes(folder),
            )
        return
    if not is_checkpoint(folder) and not candidates(folder):
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:_NAMED]) or "nothing"
        raise DatasetError(
            f"{name}: expected episodes: a dataset, a folder of headrace collect, the store or a checkpoint of a "
            f"replay; the folder holds {held}"
        )
    with StoredCheckpoint(folder) as checkpoint:
        yield Source(
            name=name,
            kind="replay",
            episodes=episodes(checkpoint),
            metadata={},
            tables=checkpoint.tables,
            stored=checkpoint,
        )


def _sizes(folder: Path) -> dict[str, int]:
    """Returns the bytes that the files take on the disk, and their lengths; the files of a store are sparse."""
    found = [path.stat() for path in folder.iterdir()]
    return {
        "bytes_on_disk": sum(each.st_blocks * 512 for each in found),
        "bytes_shown": sum(each.st_size for each in found),
    }
