"""Questions to a worker, which travel beside its data and are answered between two of its steps."""

# Rules: collectors CQ1, CQ5

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle

from headrace.collectors.failures import rebuilt
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.messages import Answer, Question
from headrace.collectors.sending import pickle_for_worker
from headrace.errors import WorkerDied
from headrace.leases.frames import Payload

ANSWER_SECONDS = 30.0
"""The time limit of an answer, in seconds."""


def pickled_question(path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Returns the payload of a question.

    Args:
        path: of a method of the worker's own collector.
        args, kwargs: of its call.

    Raises:
        TypeError: an argument cannot be pickled.
    """
    args, kwargs = tuple(args), dict(kwargs)
    arguments = dict(enumerate(args)) | kwargs
    parts = {_argument_name(path, key, value): value for key, value in arguments.items()}
    return pickle_for_worker(
        (path, args, kwargs), parts, "Make such parts in the worker, in what is called there"
    )


def _argument_name(path: str, key: int | str, value: Any) -> str:
    # Users know the type of a private method's argument, but not the method.
    return type(value).__name__ if path.startswith("_") else f"argument {key} of {path}"


class Questions:
    """The questions to one worker that wait for their answers. Thread-safe.

    A question that comes while the worker is started again is sent to its new process.

    Args:
        group: the state of all workers.
        status: of the worker.
        send: see `WorkerHandle.send`.
    """

    def __init__(self, group: GroupStatus, status: WorkerStatus, send: Callable[..., None]) -> None:
        self._group = group
        self._status = status
        self._send = send
        self._numbers = itertools.count()
        # None: not answered yet.
        self._waiting: dict[int, tuple[Answer, Payload] | WorkerDied | None] = {}
        # Payloads of questions that were not sent yet.
        self._held: dict[int, bytes] = {}

    def pose(self, payload: bytes) -> int:
        """Sends a question and returns its number, which `answer` takes.

        Args:
            payload: see `pickled_question`.

        Raises:
            WorkerDied: the worker is gone.
            Closed: after `shutdown`.
        """
        self._group.check()
        number = next(self._numbers)
        with self._group.changed:
            self._waiting[number] = None
            if self._status.is_restarting:
                self._held[number] = payload
                return number
        try:
            self._send(Question(number=number), payload=payload)
        except BaseException:
            self.forget(number)
            raise
        return number

    def send_held(self) -> None:
        """Sends the questions that have come while the worker was started again; `changed` of the group is held."""
        held, self._held = self._held, {}
        for number, payload in held.items():
            self._send(Question(number=number), payload=payload)

    def answer(self, number: int, name: str, timeout: float) -> Any:
        """Waits for an answer and returns the result of the call.

        Args:
            number: as `pose` returned it.
            name: of the question, in messages.
            timeout: in seconds.

        Raises:
            Exception: raised by the call, with the worker's traceback as a note.
            DeadlineExceeded: no answer came in time; a later one is ignored.
            WorkerDied: the worker is gone.
            Closed: the collector was shut down meanwhile.
        """
        event = (
            f"the answer of worker {self._status.worker_idx} to {name}; its environment or policy takes long"
        )
        try:
            self._group.wait(lambda: self._waiting[number] is not None, timeout, lambda: event)
            answered = self._waiting[number]
        finally:
            self.forget(number)
        if isinstance(answered, WorkerDied):
            raise answered
        assert answered is not None
        answer, payload = answered
        if answer.failure is not None:
            raise rebuilt(answer.failure, payload)
        return cloudpickle.loads(payload)

    @property
    def are_open(self) -> bool:
        """Whether a call waits for an answer."""
        return bool(self._waiting)

    def take(self, answer: Answer, payload: Payload) -> None:
        """Takes in an answer; `changed` of the group is held, and notified afterwards."""
        if answer.number in self._waiting:  # Else the question was given up.
            self._waiting[answer.number] = answer, payload

    def lose(self, died: WorkerDied) -> None:
        """Ends the waits for answers of a process that is gone; `changed` of the group is held."""
        self._held.clear()
        for number in self._waiting:
            self._waiting[number] = died

    def forget(self, number: int) -> None:
        """Gives up a question."""
        self._held.pop(number, None)
        self._waiting.pop(number, None)
