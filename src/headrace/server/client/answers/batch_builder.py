"""Batches out of the arrays of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.packing import BatchLayout
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo
from headrace.server.messages.answers import Sampled
from headrace.spec import Signature
from headrace.views.columns import METADATA, Columns
from headrace.views.view import View

_INFO = ("<u8", "<f8", "<i8", "<f8", "<i8")


class BatchBuilder:
    """Makes batches of arrays that have the names, dtypes and shapes of one answer, which are checked once.

    Args:
        answer: describes the arrays.
        arrays: of this answer.
        signature: of the replay.
        views: of the request.

    Raises:
        HeadraceError, ValueError, KeyError, TypeError: they are not a batch of these views.
    """

    def __init__(
        self,
        answer: Sampled,
        arrays: Sequence[NDArray[Any]],
        signature: Signature,
        views: Mapping[str, View] | None,
    ) -> None:
        self._has_mask = answer.has_mask
        self._layout = BatchLayout(answer.length, tuple((name, every) for name, every in answer.every))
        self._values = len(arrays) - len(_INFO) - answer.has_mask
        info = arrays[max(self._values, 0) :][: len(_INFO)]
        if [each.dtype.str for each in info] != list(_INFO) or any(each.ndim != 1 for each in info):
            raise ValueError("expected the numbers of its items")
        values = arrays[: self._values]
        self._data = (
            _data_of_columns(signature, values)
            if views is None
            else _data_of_views(answer.names or [], signature, views, values)
        )

    def batch(self, arrays: Sequence[NDArray[Any]]) -> ReplaySample:
        """Returns the batch of these arrays."""
        end = self._values + len(_INFO)
        mask = arrays[end] if self._has_mask else None
        data = self._data(arrays[: self._values])
        return ReplaySample(data, SampleInfo(*arrays[self._values : end]), mask, self._layout)


def check_columns(signature: Signature, values: Sequence[NDArray[Any]]) -> None:
    """Checks arrays, one per column, `[n, ...]`.

    Raises:
        ValueError: they are not of this signature.
    """
    for (name, spec), array in zip(signature.columns.items(), values, strict=True):
        _check_spec(name, array, spec.shape, spec.dtype)


def _check_spec(name: str, values: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if values.dtype != dtype or values.shape[values.ndim - len(shape) :] != shape:
        raise ValueError(f"{name}: expected {dtype}{list(shape)}, got {values.dtype}{list(values.shape)}")


def _data_of_columns(
    signature: Signature, values: Sequence[NDArray[Any]]
) -> Callable[[Sequence[NDArray[Any]]], Any]:
    """Returns the function that makes the tree of a batch out of its columns."""
    check_columns(signature, values)
    named = partial(_named, list(signature.columns))
    return named if signature.is_flat else lambda values: signature.unflatten(named(values))


def _data_of_views(
    names: Sequence[tuple[str, str]],
    signature: Signature,
    views: Mapping[str, View],
    values: Sequence[NDArray[Any]],
) -> Callable[[Sequence[NDArray[Any]]], Any]:
    """Returns the function that makes the tree of a batch out of the arrays of its views.

    Args:
        names: of the arrays; see `Sampled.names`.
        signature, views, values: see `BatchBuilder`.
    """
    if len(names) != len(values):
        raise ValueError(f"expected {len(names)} arrays of views, got {len(values)}")
    if not any(leaf for _, leaf in names):
        return partial(_named, [name for name, _ in names])
    columns = Columns(signature, METADATA)
    trees = {name: columns.subtree(views[name].data_col or name) for name, leaf in names if leaf}
    return partial(_unflattened, names, trees)


def _named(names: Sequence[str], values: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return dict(zip(names, values, strict=True))


def _unflattened(
    names: Sequence[tuple[str, str]], trees: Mapping[str, Signature], values: Sequence[NDArray[Any]]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    leaves: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in trees}
    for (name, leaf), array in zip(names, values, strict=True):
        if leaf:
            data.setdefault(name, None)
            leaves[name][leaf] = array
        else:
            data[name] = array
    for name, tree in trees.items():
        data[name] = tree.unflatten(leaves[name])
    return data
