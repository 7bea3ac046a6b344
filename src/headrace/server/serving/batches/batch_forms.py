"""Forms of batches, which are described once and then named by their number.

The arrays of small batches lie in one buffer, which is sent. Arrays of wide columns lie in blocks of the arena.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.replay_sample import BatchMemory, ReplaySample
from headrace.server.compression.packing import PayloadPacker
from headrace.server.messages.answers import PlacedArray, Sampled, SampledAgain
from headrace.server.serving.batches.batch_answers import (
    BatchAnswer,
    PlacedArrays,
    aligned_order,
    column_paths,
    named_arrays,
)
from headrace.server.serving.batches.batch_arena import BatchArena, address_of
from headrace.spec import Signature
from headrace.views.view import View

_MOST_FORMS = 256


class _Form(NamedTuple):
    """A form that the client knows.

    Attributes:
        number: of the form.
        spans: first and last byte of the parts of the buffer that are sent.
        nbytes: of all of them.
        paths: of the column of each part; None: nothing is to be compressed.
        wide: of each array of a wide column, the index of its block in an answer, and its first byte there.
        blocks: of each block, the index of an array in it.
    """

    number: int
    spans: list[tuple[int, int]]
    nbytes: int
    paths: list[str | None] | None
    wide: list[tuple[int, int]]
    blocks: list[int]

    def parts_of(self, memory: BatchMemory) -> list[memoryview]:
        """Returns the parts of a batch's buffer that are sent."""
        data = memory.buffer.data
        return [data[begin:end] for begin, end in self.spans]

    def blocks_of(self, places: Sequence[tuple[int, int]]) -> list[int] | None:
        """Returns the blocks of an answer; None if its arrays of wide columns have other places in them.

        Args:
            places: of these arrays; see `BatchArena.place_of`.
        """
        found = [places[index][0] for index in self.blocks]
        return found if places == [(found[block], begin) for block, begin in self.wide] else None


class SmallAnswer:
    """An answer with one batch or several of the same form, and the payload behind it.

    Args:
        message: the answer to the first of them.
        form: of the batches.
        memory: of the first.

    Attributes:
        message: the answer.
        parts: the payload.
        paths: of the column of each part; None: nothing is to be compressed.
        batch_nbytes: payload of each batch.
    """

    __slots__ = ("_form", "batch_nbytes", "message", "parts", "paths")

    def __init__(self, message: Sampled | SampledAgain, form: _Form, memory: BatchMemory) -> None:
        self._form = form
        self.message = message
        self.parts = form.parts_of(memory)
        self.paths = form.paths and [*form.paths]
        self.batch_nbytes = form.nbytes

    def takes(self, form: _Form, memory: BatchMemory, warning: str) -> bool:
        """Adds the batch of the next answer, if it has the same form; returns whether it has."""
        message = self.message
        if form is not self._form or type(message) is not SampledAgain or warning != message.warning:
            return False
        message.count += 1
        self.parts += form.parts_of(memory)
        if self.paths is not None and form.paths is not None:
            self.paths += form.paths
        return True


class BatchForms:
    """The forms that one client knows.

    Args:
        packer: of batches, if the client wants them compressed.
    """

    def __init__(self, packer: PayloadPacker | None = None) -> None:
        self._packer = packer
        self._forms: dict[object, _Form] = {}

    def answer(
        self,
        number: int,
        batch: ReplaySample,
        signature: Signature,
        views: Mapping[str, View] | None,
        warning: str,
        latest: SmallAnswer | None,
    ) -> SmallAnswer | None:
        """Returns the answer to a `Sample`; None if the arrays of the batch do not lie in one buffer.

        Args:
            number: of the request.
            batch: that was drawn.
            signature: of the replay.
            views: of the request.
            warning: for the caller.
            latest: the answer before, which is returned again if the batch belongs to it.
        """
        memory = batch._memory
        if memory is None or memory.wide or sys.byteorder != "little":
            return None
        form = self._forms.get(memory.form)
        if form is None:
            form, described = self._describe(number, batch, memory, signature, views, warning, None)
            return SmallAnswer(described, form, memory)
        if latest is not None and latest.takes(form, memory, warning):
            return latest
        return SmallAnswer(SampledAgain(number=number, form=form.number, warning=warning), form, memory)

    def answer_in_place(
        self,
        number: int,
        batch: ReplaySample,
        signature: Signature,
        views: Mapping[str, View] | None,
        warning: str,
        arena: BatchArena,
    ) -> BatchAnswer | None:
        """Returns the answer to a `Sample`; None if not all arrays of wide columns lie in the arena.

        Args:
            number, batch, signature, views, warning: see `answer`.
            arena: of the client.
        """
        memory = batch._memory
        if memory is None or sys.byteorder != "little":
            return None
        places = [place for place in map(arena.place_of, memory.wide) if place is not None]
        if len(places) < len(memory.wide):
            return None
        message: Sampled | SampledAgain
        form = self._forms.get(memory.form)
        blocks = None if form is None else form.blocks_of(places)
        if form is None or blocks is None:
            form, message = self._describe(number, batch, memory, signature, views, warning, arena)
        else:
            message = SampledAgain(number=number, form=form.number, warning=warning, blocks=tuple(blocks))
        parts = form.parts_of(memory)
        arrays = PlacedArrays([], parts, [None] * len(parts), {block for block, _ in places})
        return BatchAnswer(message, arrays)

    def _describe(
        self,
        number: int,
        batch: ReplaySample,
        memory: BatchMemory,
        signature: Signature,
        views: Mapping[str, View] | None,
        warning: str,
        arena: BatchArena | None,
    ) -> tuple[_Form, Sampled]:
        """Returns the form of a batch, which the client knows from here on, and the answer that describes it."""
        names, arrays = named_arrays(batch, signature, views)
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()
        places = [None if arena is None else arena.place_of(array) for array in arrays]
        begins = [address_of(array) - address_of(memory.buffer) for array in arrays]
        sent = [index for index, place in enumerate(places) if place is None]
        compressed = self._compressed(arrays, names, signature, views)
        spans, span_paths = _spans(
            [begins[index] for index in sent],
            [arrays[index] for index in sent],
            [compressed[i] for i in sent],
        )
        known = self._forms.get(memory.form)
        form = self._forms[memory.form] = _Form(
            len(self._forms) if known is None else known.number,
            spans,
            sum(end - begin for begin, end in spans),
            span_paths if any(span_paths) else None,
            *_wide_places(places, [] if arena is None else [arena.place_of(array) for array in memory.wide]),
        )
        message = Sampled(
            number=number,
            names=names,
            arrays=[
                PlacedArray(array.dtype.str, array.shape, *(place or (None, _place(begin, array, spans))))
                for begin, array, place in zip(begins, arrays, places, strict=True)
            ],
            has_mask=False,
            length=batch.layout.length,
            every=list(batch.layout.every),
            warning=warning,
            form=form.number,
        )
        return form, message

    def _compressed(
        self,
        arrays: Sequence[NDArray[Any]],
        names: list[tuple[str, str]] | None,
        signature: Signature,
        views: Mapping[str, View] | None,
    ) -> list[str | None]:
        """Returns for each array the path of its column if it is to be compressed, None otherwise."""
        packer = self._packer
        if packer is None:
            return [None] * len(arrays)
        paths = column_paths(names, len(arrays), signature, views)
        return [
            path if packer.takes(path, array.nbytes) else None
            for array, path in zip(arrays, paths, strict=True)
        ]


def _wide_places(
    places: Sequence[tuple[int, int] | None], wide: Sequence[tuple[int, int] | None]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns `_Form.wide` and `_Form.blocks`.

    Args:
        places: of the arrays, in the order of the answer, which is that of the blocks.
        wide: of the arrays of wide columns.
    """
    blocks = list(dict.fromkeys(place[0] for place in places if place is not None))
    found = [(blocks.index(place[0]), place[1]) for place in wide if place is not None]
    return found, [[block for block, _ in found].index(index) for index in range(len(blocks))]


def _spans(
    begins: Sequence[int], arrays: Sequence[NDArray[np.generic]], paths: Sequence[str | None]
) -> tuple[list[tuple[int, int]], list[str | None]]:
    """Returns the parts of the buffer that hold arrays, with the paths of those to be compressed.

    Bytes between the parts are not for the client, so the order of the parts is one that keeps arrays aligned.
    """
    spans: list[tuple[int, int]] = []
    found: list[str | None] = []
    for index in aligned_order(arrays):
        begin, array, path = begins[index], arrays[index], paths[index]
        end = begin + array.nbytes
        if spans and spans[-1][1] == begin and path is None and found[-1] is None:
            spans[-1] = spans[-1][0], end
        elif begin < end:
            spans.append((begin, end))
            found.append(path)
    return spans, found


def _place(begin: int, array: NDArray[np.generic], spans: Sequence[tuple[int, int]]) -> int:
    """Returns the first byte of an array in the payload."""
    before = 0
    for first, end in spans:
        if array.nbytes and first <= begin < end:
            return before + begin - first
        before += end - first
    return 0  # It has no bytes.
