"""The collector inside a worker, as questions see it, and its answers."""

# Rules: collectors CQ1, CQ4 to CQ6

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from headrace.collectors.failures import failed
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.parts import LoopParts
from headrace.collectors.messages import Answer, Question
from headrace.collectors.paths import follow_path


class OwnCollector(LoopParts):
    """The collector of one worker: questions name its parts and its methods.

    Args:
        loop: of the worker.
        worker_idx: the number of the worker.
        version: returns the version of the weights that act.
    """

    def __init__(self, loop: CollectingLoop, worker_idx: int, version: Callable[[], int]) -> None:
        self._loop = loop
        self._version = version
        self.worker_idx = worker_idx

    @property
    def policy_version(self) -> int:
        """The version of the weights that act."""
        return self._version()

    @property
    def replay_buffer(self) -> Any:
        """The replay is in the process that made the workers."""
        raise AttributeError("replay_buffer: the replay is in the learner's process; use getattr_rb(name)")

    def getattr_env(self, name: str) -> Any:
        """See `ControlSurface.getattr_env`."""
        return self._env_attribute(name)

    def getattr_policy(self, name: str) -> Any:
        """See `ControlSurface.getattr_policy`."""
        return self._policy_attribute(name)

    def answer(self, question: Question, payload: bytes) -> tuple[Answer, bytes]:
        """Answers a question; an exception of the call is the answer, too.

        Args:
            question, payload: see `Question`.
        """
        try:
            path, args, kwargs = cloudpickle.loads(payload)
            return Answer(number=question.number), _pickled(follow_path(self, path)(*args, **kwargs))
        except Exception as error:
            failure, pickled = failed(error)
            return Answer(number=question.number, failure=failure), pickled


def _pickled(value: Any) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"expected a value that can be pickled, got {type(value).__name__}: {error}"
        ) from error
    return pickled
