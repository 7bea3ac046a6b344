"""The answer to one request of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.server.client.answers.batch_form import BatchForm

if not cython.compiled:
    from headrace.kernels.kinds import Int


class Reply:
    """The answer to one request, when it has come.

    Args:
        number: of the request.
        owner: the object whose closing ends the wait.

    Attributes:
        answer, payload: as they were received.
        form: of a batch; None: it has none.
        blocks: arrays over the blocks of a batch, in the order in which its answer names them. They are given back when
            neither the reply nor an array over them is alive.
        error: the exception instead.
        is_done: whether one of them is there.
    """

    def __init__(self, number: Int, owner: object) -> None:
        self.number = number
        self.owner = owner
        self.answer: Any = None
        self.payload: Payload = b""
        self.form: BatchForm | None = None
        self.blocks: Mapping[int, NDArray[np.uint8]] = {}
        self.error: BaseException | None = None
        self.is_done = False

    def fail(self, error: BaseException) -> None:
        """Ends the wait with an exception."""
        self.error = error
        self.is_done = True

    def result(self) -> tuple[Any, Payload]:
        """Returns the answer and its payload, or raises the exception."""
        if self.error is not None:
            raise self.error
        return self.answer, self.payload
