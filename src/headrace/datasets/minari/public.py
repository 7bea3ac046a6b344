"""Minari datasets, out and in (datasets, section 2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.atomic import writing
from headrace.datasets.exporting.source import episodes_of
from headrace.datasets.minari.ids import (
    DATA_FOLDER,
    check_id,
    datasets_root,
    find_data_folder,
    namespace_folders,
)
from headrace.datasets.progress import check_progress, counting
from headrace.trajectories.episode import Episode

if TYPE_CHECKING:
    from gymnasium import Space
    from gymnasium.envs.registration import EnvSpec

    from headrace.replay import Replay

_NAMESPACE_FILE = "namespace_metadata.json"


def save_minari(
    source: Iterable[Episode] | Replay,
    dataset_id: str,
    *,
    root: str | os.PathLike[str] | None = None,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
    env_spec: EnvSpec | str | None = None,
    eval_env_spec: EnvSpec | str | None = None,
    algorithm_name: str | None = None,
    author: str | Iterable[str] | None = None,
    author_email: str | Iterable[str] | None = None,
    code_permalink: str | None = None,
    description: str | None = None,
    requirements: str | Iterable[str] | None = None,
    ref_min_score: float | None = None,
    ref_max_score: float | None = None,
    data_format: str = "hdf5",
    compression: str | None = "gzip",
    overwrite: bool = False,
    progress: bool | Callable[[int, int | None], None] | None = None,
) -> Path:
    """Writes episodes as a Minari dataset that every Minari 0.5 reads, all or nothing.

    The arrays are written as they are, images too (never as JPEG). An episode without an end is flagged truncated at
    its last step. Needs `pip install "headrace[minari]"`, but not Minari itself.

    Args:
        source: episodes of one structure, or a Replay, which means its complete ones; read one at a time.
        dataset_id: `name-vN` or `namespace/name-vN`.
        root: the folder of all datasets; None is `$MINARI_DATASETS_PATH`, or `~/.minari/datasets`.
        observation_space: what each observation must be in; None takes that of `env_spec`, or infers one from the data.
        action_space: as `observation_space`.
        env_spec: of the environment: a gymnasium EnvSpec, its JSON, or an id.
        eval_env_spec: as `env_spec`: of the environment to evaluate in.
        algorithm_name: what acted.
        author: one or several.
        author_email: as `author`.
        code_permalink: where the code is that made the data.
        description: for people.
        requirements: of the environment, as pip takes them.
        ref_min_score: the return that counts as 0 in normalized scores.
        ref_max_score: the return that counts as 1.
        data_format: "hdf5"; Minari's others are read here but not written.
        compression: "gzip" or None.
        overwrite: replace a dataset that is there, once the new one is complete.
        progress: True shows a bar; a callable gets `(episodes done, total or None)`.

    Returns:
        The dataset's folder, `<root>/<dataset_id>`.

    Raises:
        ValueError: an id of another form, a space that Minari has no form for, an environment that is not registered,
            no episodes at all.
        SpecError: an episode unlike the first, or one that does not fit the spaces; with the episode and the path.
        TypeError: something in the source that is not an episode.
        FileExistsError: the dataset is there.
        ImportError: h5py is missing.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> path = save_minari([Episode([0.0, 1.0], [1], [0.5], [True], [False])], "demo/line-v0", root=root)
    >>> load_minari("demo/line-v0", root=root)
    MinariEpisodes(1 episodes, 1 steps)
    """
    check_id(dataset_id)
    _check_choice("data_format", data_format, ("hdf5",))
    _check_choice("compression", compression, ("gzip", None))
    check_progress(progress)
    from headrace.datasets.minari import metadata as metadata
    from headrace.datasets.minari.env_spec import env_spec_of, env_spec_to_json
    from headrace.datasets.minari.saving import GivenSpaces, write_episodes

    specs = {
        "env_spec": env_spec_of(env_spec, "env_spec"),
        "eval_env_spec": env_spec_of(eval_env_spec, "eval_env_spec"),
    }
    given = GivenSpaces.of(observation_space, action_space, specs["env_spec"])
    described = {
        **{name: env_spec_to_json(spec, name) for name, spec in specs.items() if spec is not None},
        **metadata.text_metadata(
            algorithm_name=algorithm_name, code_permalink=code_permalink, description=description
        ),
        **metadata.list_metadata(author=author, author_email=author_email, requirements=requirements),
        **metadata.score_metadata(ref_min_score=ref_min_score, ref_max_score=ref_max_score),
    }
    folder = datasets_root(root)
    target = folder / dataset_id
    _refuse_what_is_no_dataset(target)
    episodes, total = episodes_of(source)
    with writing(target, overwrite) as temporary:
        data = temporary / DATA_FOLDER
        data.mkdir(parents=True)
        with counting(progress, total) as one_more:
            written = write_episodes(data, episodes, given, compression, one_more)
        metadata.write_metadata(data, {**metadata.of_dataset(dataset_id), **described, **written})
        metadata.read_metadata(data)
    _note_namespaces(folder, dataset_id)
    return target


def load_minari(
    dataset: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    missing_final: str = "error",
) -> EpisodeDataset:
    """Opens a Minari dataset in any of its formats: hdf5, arrow or parquet.

    Images that Minari stored as JPEG are decoded; strings are str. `metadata` is what `metadata.json` says, with the
    numbers of episodes and steps that the data has.

    Args:
        dataset: an id, or the path of the dataset's folder or of its `data`.
        root: the folder of all datasets, as in `save_minari`.
        missing_final: what to do with episodes that have T observations instead of T+1. "error": reading one raises.
            "drop": its last transition is left out, and the rest counts as truncated.

    Raises:
        FileNotFoundError: there is none; with the full path and similar ids.
        DatasetError: it is damaged, here or when an episode is read; with the file, the episode and the field.
        ImportError: h5py, pyarrow or Pillow is missing for what the dataset holds.

    Warns:
        UserWarning: a `minari_version` that is not known; a `total_steps` that the data does not have.
    """
    _check_choice("missing_final", missing_final, ("error", "drop"))
    from headrace.datasets.minari.loading import MinariEpisodes

    return MinariEpisodes(find_data_folder(dataset, root), missing_final)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def _refuse_what_is_no_dataset(target: Path) -> None:
    # It may be a namespace with other datasets in it, which overwriting would delete.
    if target.exists() and not (target / DATA_FOLDER).is_dir():
        raise FileExistsError(f"{target} is there and is no Minari dataset, so it is not replaced")


def _note_namespaces(root: Path, dataset_id: str) -> None:
    """Minari lists the folders that have such a file as namespaces."""
    for folder in namespace_folders(root, dataset_id):
        file = folder / _NAMESPACE_FILE
        with suppress(OSError):  # The dataset is complete and can be loaded, listed or not.
            if not file.exists():
                file.write_text("{}", encoding="utf-8")
