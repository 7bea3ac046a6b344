"""The forms of small batches, which the server describes once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload, ProtocolError
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.batch_builder import BatchBuilder
from headrace.server.client.placed_arrays import array_in, buffer_of
from headrace.server.messages.answers import Answer, Sampled, SampledAgain
from headrace.server.messages.requests import MOST_BATCHES
from headrace.spec import Signature
from headrace.store.fields import Fields
from headrace.views.view import View

_MOST_FORMS = 256


class BatchForm:
    """The form of batches whose arrays lie in the payload.

    Args:
        answer: that describes it.
        nbytes: of the payload of each batch.

    """

    def __init__(self, answer: Sampled, nbytes: int) -> None:
        self._answer = answer
        self._nbytes = nbytes
        # Made with the first batch.
        self._fields: Fields | None = None
        self._builder: BatchBuilder | None = None

    def batch(self, payload: Payload, signature: Signature, views: Mapping[str, View] | None) -> ReplaySample:
        """Returns a batch of this form, which is always of the same views.

        Args:
            payload: its arrays.
            signature: of the replay.
            views: of the request.

        Raises:
            HeadraceError, ValueError, KeyError, TypeError: it is not a batch of these views.
        """
        arrays = self.arrays(payload)
        if self._builder is None:
            self._builder = BatchBuilder(self._answer, arrays, signature, views)
        return self._builder.batch(arrays)

    def arrays(self, payload: Payload) -> list[NDArray[Any]]:
        """Returns the arrays of a batch; the caller may write into them.

        Raises:
            ValueError, TypeError: they are not numbers within the payload.
        """
        if len(payload) != self._nbytes:
            raise ValueError(f"expected {self._nbytes} bytes, got {len(payload)}")
        buffer = buffer_of(payload)
        if self._fields is None:
            self._fields = self._checked_fields(buffer)
        return self._fields.arrays(buffer)

    def _checked_fields(self, buffer: NDArray[np.uint8]) -> Fields:
        places = self._answer.arrays
        for each in places:
            dtype = array_in(buffer, each).dtype
            if each.block is not None or each.offset % dtype.alignment:
                raise ValueError(f"expected an aligned array in the payload, got {each}")
        names = [str(number) for number in range(len(places))]
        block: Any = {
            "names": names,
            "formats": [(each.dtype, each.shape) for each in places],
            "offsets": [each.offset for each in places],
            "itemsize": self._nbytes,
        }
        return Fields(np.dtype(block), {name: name for name in names})


class KnownForms:
    """The forms of small batches that the server has described over one connection."""

    def __init__(self) -> None:
        self._forms: dict[int, BatchForm] = {}

    def form_of(self, answer: Answer, payload: Payload) -> BatchForm | None:
        """Returns the form of a small batch, which the answer names, or describes for later ones.

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
    if not 1 <= count <= MOST_BATCHES or len(data) % count:
        raise ProtocolError(f"the server sent {count} batches in {len(data)} bytes")
    nbytes = len(data) // count
    return [memoryview(bytearray(data[place * nbytes : (place + 1) * nbytes])) for place in range(count)]
