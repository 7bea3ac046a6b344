"""Small batches whose arrays lie in one buffer: their form is described once, and then named by its number."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.replay_sample import BatchMemory, ReplaySample
from headrace.server.compression.packing import PayloadPacker
from headrace.server.messages.answers import PlacedArray, Sampled, SampledAgain
from headrace.server.serving.batches.batch_answers import column_paths, named_arrays
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
    """

    number: int
    spans: list[tuple[int, int]]
    nbytes: int
    paths: list[str | None] | None

    def parts_of(self, memory: BatchMemory) -> list[memoryview]:
        """Returns the parts of a batch's buffer that are sent."""
        data = memory.buffer.data
        return [data[begin:end] for begin, end in self.spans]


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
        if memory is None or sys.byteorder != "little":
            return None
        form = self._forms.get(memory.form)
        message: Sampled | SampledAgain
        if form is not None:
            if latest is not None and latest.takes(form, memory, warning):
                return latest
            message = SampledAgain(number=number, form=form.number, warning=warning)
        else:
            names, arrays = named_arrays(batch, signature, views)
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            begins = [_address(array) - _address(memory.buffer) for array in arrays]
            spans, span_paths = _spans(begins, arrays, self._compressed(arrays, names, signature, views))
            paths = span_paths if any(span_paths) else None
            nbytes = sum(end - begin for begin, end in spans)
            form = self._forms[memory.form] = _Form(len(self._forms), spans, nbytes, paths)
            message = Sampled(
                number=number,
                names=names,
                arrays=[
                    PlacedArray(array.dtype.str, array.shape, None, _place(begin, spans))
                    for begin, array in zip(begins, arrays, strict=True)
                ],
                has_mask=False,
                length=batch.layout.length,
                every=list(batch.layout.every),
                warning=warning,
                form=form.number,
            )
        return SmallAnswer(message, form, memory)

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


def _address(array: NDArray[Any]) -> int:
    return array.ctypes.data


def _spans(
    begins: Sequence[int], arrays: Sequence[NDArray[np.generic]], paths: Sequence[str | None]
) -> tuple[list[tuple[int, int]], list[str | None]]:
    """Returns the parts of the buffer that hold arrays, with the paths of those to be compressed.

    Bytes between the parts are not for the client.
    """
    spans: list[tuple[int, int]] = []
    found: list[str | None] = []
    for begin, array, path in sorted(zip(begins, arrays, paths, strict=True), key=lambda each: each[0]):
        end = begin + array.nbytes
        if spans and spans[-1][1] == begin and path is None and found[-1] is None:
            spans[-1] = spans[-1][0], end
        elif begin < end:
            spans.append((begin, end))
            found.append(path)
    return spans, found


def _place(begin: int, spans: Sequence[tuple[int, int]]) -> int:
    """Returns the first byte of an array in the payload."""
    before = 0
    for first, end in spans:
        if first <= begin < end:
            return before + begin - first
        before += end - first
    return before
