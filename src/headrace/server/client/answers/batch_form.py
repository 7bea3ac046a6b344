"""The forms of batches, which the server describes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload, ProtocolError
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.answers.batch_builder import BatchBuilder
from headrace.server.client.answers.placed_arrays import array_in, buffer_of, named_blocks
from headrace.server.messages.answers import Answer, PlacedArray, Sampled, SampledAgain
from headrace.server.messages.requests import MOST_BATCHES
from headrace.spec import Signature
from headrace.store.fields import Fields
from headrace.views.view import View

_MOST_FORMS = 256


class BatchForm:
    """The form of batches whose arrays lie in the payload, or at the same places of other blocks.

    Args:
        answer: that describes it.
        nbytes: of the payload of each batch.

    Attributes:
        is_in_payload: whether all arrays lie there.
    """

    def __init__(self, answer: Sampled, nbytes: int) -> None:
        self._answer = answer
        self._nbytes = nbytes
        self._blocks = [*named_blocks(answer)]
        self.is_in_payload = not self._blocks
        # Made with the first batch: the arrays of the payload and of each block, and their order in the answer.
        self._fields: list[Fields] = []
        self._sizes: list[int] = []
        self._order: list[int] = []
        self._builder: BatchBuilder | None = None

    def batch(
        self,
        payload: Payload,
        blocks: Sequence[NDArray[np.uint8]],
        signature: Signature,
        views: Mapping[str, View] | None,
    ) -> ReplaySample:
        """Returns a batch of this form, which is always of the same views.

        Args:
            payload, blocks: see `arrays`.
            signature: of the replay.
            views: of the request.

        Raises:
            HeadraceError, ValueError, KeyError, TypeError: it is not a batch of these views.
        """
        arrays = self.arrays(payload, blocks)
        if self._builder is None:
            self._builder = BatchBuilder(self._answer, arrays, signature, views)
        return self._builder.batch(arrays)

    def arrays(self, payload: Payload, blocks: Sequence[NDArray[np.uint8]] = ()) -> list[NDArray[Any]]:
        """Returns the arrays of a batch; the caller may write into them.

        Args:
            payload: of its answer.
            blocks: of the answer, in which other arrays lie.

        Raises:
            ValueError, TypeError: they are not numbers within the payload and the blocks.
        """
        if len(payload) != self._nbytes:
            raise ValueError(f"expected {self._nbytes} bytes, got {len(payload)}")
        if len(blocks) != len(self._blocks):
            raise ValueError(f"expected {len(self._blocks)} blocks, got {len(blocks)}")
        buffer = buffer_of(payload)
        if not self._order:
            self._check([buffer, *blocks])
        arrays = self._fields[0].arrays(buffer)
        if not blocks:
            return arrays
        for fields, nbytes, block in zip(self._fields[1:], self._sizes, blocks, strict=True):
            if block.nbytes < nbytes:
                raise ValueError(f"expected a block of {nbytes} bytes, got {block.nbytes}")
            arrays += fields.arrays(block)
        return [arrays[index] for index in self._order]

    def _check(self, roots: Sequence[NDArray[np.uint8]]) -> None:
        """Checks the places of all arrays, in the payload and the blocks of one batch, and prepares further ones."""
        fields, sizes, order = [], [], []
        for block, root in zip([None, *self._blocks], roots, strict=True):
            places = [(index, each) for index, each in enumerate(self._answer.arrays) if each.block == block]
            ends = []
            for _, each in places:
                array = array_in(root, each)
                if each.offset % array.dtype.alignment:
                    raise ValueError(f"expected an aligned array, got {each}")
                ends.append(each.offset + array.nbytes)
            sizes.append(max(ends, default=0))
            order += [index for index, _ in places]
            fields.append(_fields_of([each for _, each in places], root.nbytes))
        self._fields, self._sizes = fields, sizes[1:]
        self._order = [order.index(index) for index in range(len(order))]


def _fields_of(places: Sequence[PlacedArray], nbytes: int) -> Fields:
    """Returns the arrays at these places of a buffer of so many bytes."""
    names = [str(number) for number in range(len(places))]
    block: Any = {
        "names": names,
        "formats": [(each.dtype, each.shape) for each in places],
        "offsets": [each.offset for each in places],
        "itemsize": nbytes,
    }
    return Fields(np.dtype(block), {name: name for name in names})


class KnownForms:
    """The forms of batches that the server has described over one connection."""

    def __init__(self) -> None:
        self._forms: dict[int, BatchForm] = {}

    def form_of(self, answer: Answer, payload: Payload) -> BatchForm | None:
        """Returns the form of a batch, which the answer names, or describes for later ones.

        Raises:
            ProtocolError: it names a form that was not described, or describes too many.
        """
        if isinstance(answer, SampledAgain):
            form = self._forms.get(answer.form)
            if form is None:
                raise ProtocolError(
                    f"the server sent a batch of form {answer.form}, which it did not describe"
                )
            return form
        if isinstance(answer, Sampled) and answer.form is not None:
            if len(self._forms) >= _MOST_FORMS and answer.form not in self._forms:
                raise ProtocolError(f"expected at most {_MOST_FORMS} forms of batches, got one more")
            form = self._forms[answer.form] = BatchForm(answer, len(payload))
            return form
        return None


def split_payload(answer: SampledAgain, payload: Payload) -> list[memoryview]:
    """Returns the payloads of several batches, each in memory of its own, where its numbers are aligned.

    Raises:
        ProtocolError: the payload is not that of so many batches.
    """
    count, data = answer.count, memoryview(payload)
    if answer.blocks:
        raise ProtocolError(f"the server sent {count} batches in the same blocks")
    if not 1 <= count <= MOST_BATCHES or len(data) % count:
        raise ProtocolError(f"the server sent {count} batches in {len(data)} bytes")
    nbytes = len(data) // count
    return [memoryview(bytearray(data[place * nbytes : (place + 1) * nbytes])) for place in range(count)]
