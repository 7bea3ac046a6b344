"""Small batches whose arrays lie in one buffer: their form is described once, and then named by its number."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.messages.answers import PlacedArray, Sampled, SampledAgain
from headrace.server.serving.batches.batch_answers import named_arrays
from headrace.spec import Signature
from headrace.views.view import View

_MOST_FORMS = 256


class _Form(NamedTuple):
    """A form that the client knows.

    Attributes:
        number: of the form.
        spans: first and last byte of the parts of the buffer that are sent.
    """

    number: int
    spans: list[tuple[int, int]]


class SmallAnswer(NamedTuple):
    """An answer, and the payload behind it."""

    message: Sampled | SampledAgain
    parts: list[memoryview]

    @property
    def nbytes(self) -> int:
        """Length of the payload."""
        return sum(map(len, self.parts))

    def takes(self, other: SmallAnswer) -> bool:
        """Adds the batch of the next answer, if it has the same form; returns whether it has."""
        first, second = self.message, other.message
        if not (isinstance(first, SampledAgain) and isinstance(second, SampledAgain)):
            return False
        if (first.form, first.warning) != (second.form, second.warning):
            return False
        first.count += 1
        self.parts.extend(other.parts)
        return True


class BatchForms:
    """The forms that one client knows."""

    def __init__(self) -> None:
        self._forms: dict[object, _Form] = {}

    def answer(
        self,
        number: int,
        batch: ReplaySample,
        signature: Signature,
        views: Mapping[str, View] | None,
        warning: str,
    ) -> SmallAnswer | None:
        """Returns the answer to a `Sample`; None if the arrays of the batch do not lie in one buffer.

        Args:
            number: of the request.
            batch: that was drawn.
            signature: of the replay.
            views: of the request.
            warning: for the caller.
        """
        memory = batch._memory
        if memory is None or sys.byteorder != "little":
            return None
        data = memory.buffer.data
        form = self._forms.get(memory.form)
        message: Sampled | SampledAgain
        if form is not None:
            message = SampledAgain(number=number, form=form.number, warning=warning)
        else:
            names, arrays = named_arrays(batch, signature, views)
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            begins = [_address(array) - _address(memory.buffer) for array in arrays]
            spans = _spans(begins, arrays)
            form = self._forms[memory.form] = _Form(len(self._forms), spans)
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
        return SmallAnswer(message, [data[begin:end] for begin, end in form.spans])


def _address(array: NDArray[Any]) -> int:
    return array.ctypes.data


def _spans(begins: Sequence[int], arrays: Sequence[NDArray[np.generic]]) -> list[tuple[int, int]]:
    """Returns the parts of the buffer that hold arrays: bytes between them are not for the client."""
    spans: list[tuple[int, int]] = []
    for begin, array in sorted(zip(begins, arrays, strict=True), key=lambda each: each[0]):
        end = begin + array.nbytes
        if spans and spans[-1][1] == begin:
            spans[-1] = spans[-1][0], end
        elif begin < end:
            spans.append((begin, end))
    return spans


def _place(begin: int, spans: Sequence[tuple[int, int]]) -> int:
    """Returns the first byte of an array in the payload."""
    before = 0
    for first, end in spans:
        if first <= begin < end:
            return before + begin - first
        before += end - first
    return before
