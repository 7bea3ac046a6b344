"""Batches as answers: the arrays, and where each lies."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.messages.answers import PlacedArray, Sampled, SampledAgain
from headrace.server.serving.batches.batch_arena import BatchArena
from headrace.spec import Signature
from headrace.views.columns import Columns
from headrace.views.view import View

# To look for the place of a smaller array costs more than to copy it.
_LEAST_PLACED_NBYTES = 1 << 12


class PlacedArrays(NamedTuple):
    """Arrays to be sent.

    Attributes:
        places: one per array.
        parts: the payload.
        paths: of the column of each part; None: it is not of a column.
        blocks: of the arena, in which some of them lie.
    """

    places: list[PlacedArray]
    parts: list[memoryview]
    paths: list[str | None]
    blocks: set[int]


def placed(
    arrays: Collection[NDArray[Any]], arena: BatchArena | None, paths: Iterable[str | None] | None = None
) -> PlacedArrays:
    """Returns where arrays lie: in the arena, or one after the other in the payload, where each is aligned.

    Args:
        arrays: to be sent.
        arena: in which some may lie.
        paths: of their columns, for `PlacedArrays.paths`; None: they are not of columns.
    """
    found = PlacedArrays([PlacedArray("", (), None, 0)] * len(arrays), [], [], set())
    offset = 0
    named = [*zip(arrays, [None] * len(arrays) if paths is None else paths, strict=True)]
    for index in aligned_order([array for array, _ in named]):
        array, path = named[index]
        place = None if arena is None or array.nbytes < _LEAST_PLACED_NBYTES else arena.place_of(array)
        if place is not None:
            found.blocks.add(place[0])
            found.places[index] = PlacedArray(array.dtype.str, array.shape, *place)
            continue
        contiguous = _little_endian(array)
        found.places[index] = PlacedArray(
            contiguous.dtype.str, array.shape, None, offset if array.nbytes else 0
        )
        if contiguous.nbytes:
            found.parts.append(contiguous.reshape(-1).view(np.uint8).data)
            found.paths.append(path)
        offset += contiguous.nbytes
    return found


def aligned_order(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Returns the order in which arrays that lie one after the other are all aligned: that of falling alignment."""
    return sorted(range(len(arrays)), key=lambda index: -arrays[index].dtype.alignment)


class BatchAnswer(NamedTuple):
    """A batch to be sent."""

    message: Sampled | SampledAgain
    arrays: PlacedArrays


def batch_answer(
    number: int,
    batch: ReplaySample,
    signature: Signature,
    views: Mapping[str, View] | None,
    arena: BatchArena | None,
) -> BatchAnswer:
    """Returns the answer to a `Sample`.

    Args:
        number: of the request.
        batch: that was drawn.
        signature: of the replay.
        views: of the request.
        arena: in which large arrays of the batch may lie.
    """
    names, arrays = named_arrays(batch, signature, views)
    found = placed(arrays, arena, column_paths(names, len(arrays), signature, views))
    message = Sampled(
        number=number,
        names=names,
        arrays=found.places,
        has_mask=batch.mask is not None,
        length=batch.layout.length,
        every=list(batch.layout.every),
    )
    return BatchAnswer(message, found)


def named_arrays(
    batch: ReplaySample, signature: Signature, views: Mapping[str, View] | None
) -> tuple[list[tuple[str, str]] | None, list[NDArray[Any]]]:
    """Returns the names and arrays of an answer; see `Sampled`."""
    if views is None:
        names = None
        arrays = list(signature.flatten(batch.data).values())
    else:
        names, arrays = _shown(signature, views, batch.data)
    info = batch.info
    arrays += [info.keys, info.probabilities, info.table_size, info.priorities, info.times_sampled]
    if batch.mask is not None:
        arrays.append(batch.mask)
    return names, arrays


def column_paths(
    names: list[tuple[str, str]] | None,
    count: int,
    signature: Signature,
    views: Mapping[str, View] | None,
) -> list[str | None]:
    """Returns the path of the stored column that each of `count` arrays shows; None: the array shows no column.

    Args:
        names: see `named_arrays`.
        count: number of arrays.
        signature: of the replay.
        views: of the request.
    """
    found: list[str | None]
    if names is None or views is None:
        found = [*signature.columns]
    else:
        stored = {name: view.data_col or name for name, view in views.items()}
        # Masks have no view, and names that follow from those that the client chooses.
        shown = [(stored.get(name), leaf) for name, leaf in names]
        found = [f"{path}/{leaf}" if path and leaf else path for path, leaf in shown]
    return found + [None] * (count - len(found))


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    if array.flags.c_contiguous and (sys.byteorder == "little" and array.dtype.isnative):
        return array
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _shown(
    signature: Signature, views: Mapping[str, View], data: Mapping[str, Any]
) -> tuple[list[tuple[str, str]], list[NDArray[Any]]]:
    """Returns the arrays of views, with the name of the view and of the leaf under it."""
    names: list[tuple[str, str]] = []
    arrays: list[NDArray[Any]] = []
    for name, value in data.items():
        if isinstance(value, np.ndarray):
            leaves = {"": value}
        else:
            view = views[name]
            leaves = Columns(signature, {}).subtree(view.data_col or name).flatten(value)
        names += [(name, leaf) for leaf in leaves]
        arrays += leaves.values()
    return names, arrays
