"""The form of small batches, which the server describes once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.server.client.placed_arrays import array_in, buffer_of
from headrace.server.messages.answers import Sampled
from headrace.store.fields import Fields


class BatchForm:
    """The form of batches whose arrays lie in the payload.

    Args:
        answer: that describes it.
        nbytes: of the payload of each batch.

    Attributes:
        answer: see above.
    """

    def __init__(self, answer: Sampled, nbytes: int) -> None:
        self.answer = answer
        self._nbytes = nbytes
        self._fields: Fields | None = None

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
        places = self.answer.arrays
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
