"""What `headrace export` and `headrace inspect` read: a dataset of any format, or a replay that was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.opening import holds_minari, open_dataset
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

# In the folder that `headrace collect` writes.
DATASET = "episodes.npz"
# So many entries of a folder with something else are named.
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Source:
    """An open source of episodes.

    Attributes:
        name: as the user gave it.
        kind: "minari", "parquet", "npz", "replay" or "store".
        episodes: read in this order; of a replay it has `left_out`.
        metadata: what the dataset says about itself.
        observation_space, action_space: where it has them.
        env_spec: of the environment, where it has it: a gymnasium EnvSpec.
        tables: of a replay: the name of each to the number of its items.
        sizes: of a store, in bytes; they are told of it, and are not metadata of its episodes.
    """

    name: str
    kind: str
    episodes: Iterable[Episode]
    metadata: dict[str, Any]
    observation_space: Any = None
    action_space: Any = None
    env_spec: Any = None
    tables: Mapping[str, int] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """Episodes of a replay that are not complete; known when all were read."""
        return getattr(self.episodes, "left_out", 0)


@contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a dataset by its path or Minari id, a replay by the folder of its store or of its checkpoints.

    The folder that `headrace collect` wrote stands for the dataset in it.

    Raises:
        click.BadParameter: there is nothing of that name.
        DatasetError, CheckpointError: it cannot be read.
    """
    path = Path(name)
    if (path / DATASET).is_file():
        path = path / DATASET
    elif path.is_dir() and not holds_minari(path):
        with _open_replay(path, name) as source:
            yield source
        return
    try:
        dataset = open_dataset(path if path.exists() else name)
    except FileNotFoundError as error:
        # Without the argument's name, which each command has its own of.
        raise click.BadParameter(str(error)) from error
    with dataset:
        yield _of_dataset(name, dataset)


def _of_dataset(name: str, dataset: EpisodeDataset) -> Source:
    from headrace.datasets.minari.env_spec import env_spec_from_json
    from headrace.datasets.minari.spaces import space_from_json

    noted = dataset.metadata
    spaces = {
        key: getattr(dataset, key) or _parsed(space_from_json, noted.get(key))
        for key in ("observation_space", "action_space")
    }
    env_spec = _parsed(lambda text: env_spec_from_json(text, "env_spec"), noted.get("env_spec"))
    return Source(
        name=name, kind=dataset.format_name, episodes=dataset, metadata=noted, env_spec=env_spec, **spaces
    )


def _parsed(parse: Callable[[str], Any], text: Any) -> Any:
    """Parses what `headrace collect` or Minari noted; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return parse(text)
    except (ValueError, TypeError, KeyError):
        return None


@contextmanager
def _open_replay(folder: Path, name: str) -> Iterator[Source]:
    from headrace.datasets.stored_episodes import episodes
    from headrace.persist.folders import candidates, is_checkpoint
    from headrace.replay import Replay
    from headrace.replay.stored import StoredReplay, is_store

    if is_store(folder):
        with StoredReplay(folder) as stored:
            yield Source(
                name=name,
                kind="store",
                episodes=episodes(stored),
                metadata={},
                tables=stored.tables,
                sizes=_sizes(folder),
            )
        return
    if not is_checkpoint(folder) and not candidates(folder):
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:_NAMED]) or "nothing"
        raise DatasetError(
            f"{name}: expected episodes: a dataset, what headrace collect wrote, the store or a checkpoint of a "
            f"replay; the folder holds {held}"
        )
    with Replay.load(folder) as replay:
        tables = {table: len(replay.table(table)) for table in replay.table_names}
        yield Source(name=name, kind="replay", episodes=episodes(replay), metadata={}, tables=tables)


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes that files take of the disk, and those that they show: files of a store are sparse."""
    found = [path.stat() for path in folder.iterdir()]
    return {
        "bytes_on_disk": sum(each.st_blocks * 512 for each in found),
        "bytes_shown": sum(each.st_size for each in found),
    }
