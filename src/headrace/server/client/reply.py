"""The answer to one request of a client."""

from __future__ import annotations

from typing import Any

from headrace.leases.frames import Payload
from headrace.server.client.batch_form import BatchForm


class Reply:
    """The answer to one request, when it has come.

    Args:
        number: of the request.
        owner: the object whose closing ends the wait.

    Attributes:
        answer, payload: as they were received.
        form: of a batch; None: it has none.
        error: the exception instead.
        is_done: whether one of them is there.
    """

    __slots__ = ("answer", "error", "form", "is_done", "number", "owner", "payload")

    def __init__(self, number: int, owner: object) -> None:
        self.number = number
        self.owner = owner
        self.answer: Any = None
        self.payload: Payload = b""
        self.form: BatchForm | None = None
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
