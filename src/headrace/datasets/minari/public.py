"""Public functions for Minari datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.export import export
from headrace.datasets.minari.ids import (
    DATA_FOLDER,
    check_id,
    datasets_root,
    find_data_folder,
    namespace_folders,
)
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

    Arrays are written as they are; images, too, and never as JPEG. An episode without an end gets a truncation at its
    last step. Needs `pip install "headrace[minari]"`, but not Minari itself.

    Args:
        source: episodes of one structure, or a Replay, of which the complete ones are taken; read one at a time.
        dataset_id: `name-vN` or `namespace/name-vN`.
        root: the folder of all datasets; None is `$MINARI_DATASETS_PATH`, or `~/.minari/datasets`.
        observation_space: space of all observations; None takes that of `env_spec`, or infers one from the data.
        action_space: as `observation_space`.
        env_spec: the environment: a gymnasium EnvSpec, its JSON, or an id.
        eval_env_spec: as `env_spec`: the environment for evaluation.
        algorithm_name: name of the policy that acted.
        author: one or several names.
        author_email: as `author`.
        code_permalink: link to the code that made the data.
        description: text for readers.
        requirements: packages for the environment, as pip takes them.
        ref_min_score: return that counts as 0 in normalized scores.
        ref_max_score: return that counts as 1.
        data_format: "hdf5"; Minari's other formats are read here but not written.
        compression: "gzip" or None.
        overwrite: whether an existing dataset is replaced, once the new one is complete.
        progress: True for a bar, or a callable `f(done, total)`.

    Returns:
        The dataset's folder, `<root>/<dataset_id>`.

    Raises:
        ValueError: the id has another form, Minari has no form for a space, an environment is not registered, or the
            source has no episodes.
        SpecError: an episode has another structure than the first, or does not fit a space; with the episode and the
            path.
        TypeError: an element of the source is not an episode.
        FileExistsError: the dataset exists.
        ImportError: h5py is not installed.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> path = save_minari([Episode([0.0, 1.0], [1], [0.5], [True], [False])], "demo/line-v0", root=root)
    >>> load_minari("demo/line-v0", root=root)
    MinariEpisodes(1 episodes, 1 steps)
    """
    check_id(dataset_id)
    _check_choice("data_format", data_format, ("hdf5",))
    _check_choice("compression", compression, ("gzip", None))
    from headrace.datasets.minari.env_spec import env_spec_of, env_spec_to_json
    from headrace.datasets.minari.metadata import described
    from headrace.datasets.minari.writing import MinariWriter, checked_spaces

    given = {"env_spec": env_spec, "eval_env_spec": eval_env_spec}
    specs = {name: env_spec_of(value, name) for name, value in given.items()}
    spaces = checked_spaces(observation_space, action_space, specs["env_spec"])
    metadata = {
        **{name: env_spec_to_json(spec, name) for name, spec in specs.items() if spec is not None},
        **described(
            algorithm_name=algorithm_name,
            author=author,
            author_email=author_email,
            code_permalink=code_permalink,
            description=description,
            requirements=requirements,
            ref_min_score=ref_min_score,
            ref_max_score=ref_max_score,
        ),
    }
    folder = datasets_root(root)
    target = folder / dataset_id
    # A namespace has other datasets in it, which overwriting would delete.
    if target.exists() and not (target / DATA_FOLDER).is_dir():
        raise FileExistsError(f"{target} exists and is no Minari dataset, so it is not replaced")
    export(
        source,
        target,
        lambda temporary, structure: MinariWriter(
            temporary, dataset_id, structure, spaces, compression, metadata
        ),
        overwrite=overwrite,
        progress=progress,
    )
    _mark_namespaces(folder, dataset_id)
    return target


def load_minari(
    dataset: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    missing_final: str = "error",
) -> EpisodeDataset:
    """Opens a Minari dataset in any of its formats: hdf5, arrow or parquet.

    Images that Minari stored as JPEG are decoded, and strings are str. `metadata` is the content of `metadata.json`,
    with the numbers of episodes and steps in the data.

    Args:
        dataset: an id, or the path of the dataset's folder or of its `data`.
        root: the folder of all datasets, as in `save_minari`.
        missing_final: treatment of episodes that have T observations instead of T+1. "error": reading one raises.
            "drop": the last transition is left out, and the rest counts as truncated.

    Raises:
        FileNotFoundError: the dataset does not exist; with the full path and similar ids.
        DatasetError: the dataset is damaged, found here or when an episode is read; with the file, the episode and the
            field.
        ImportError: h5py, pyarrow or Pillow is missing for the data.

    Warns:
        UserWarning: a `minari_version` that is not known; a `total_steps` that differs from the data.
    """
    _check_choice("missing_final", missing_final, ("error", "drop"))
    from headrace.datasets.minari.dataset import MinariEpisodes

    return MinariEpisodes(find_data_folder(dataset, root), missing_final)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def _mark_namespaces(root: Path, dataset_id: str) -> None:
    """Writes the file by which Minari lists a folder as a namespace."""
    for folder in namespace_folders(root, dataset_id):
        file = folder / _NAMESPACE_FILE
        with suppress(OSError):  # The dataset is complete and can be loaded without the file.
            if not file.exists():
                file.write_text("{}", encoding="utf-8")
