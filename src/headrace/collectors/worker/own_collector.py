"""The collector inside a worker, as questions see it, and its answers."""

# Rules: collectors CQ1, CQ4 to CQ6

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinMethodType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import cloudpickle

from headrace.collectors.failures import failed
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.parts import LoopParts
from headrace.collectors.loop.turn import RolloutTurn
from headrace.collectors.messages import Answer, Question
from headrace.collectors.paths import follow_path
from headrace.collectors.saved.worker_state import worker_state
from headrace.collectors.states import check_num_envs
from headrace.collectors.updates.reading import WeightReading
from headrace.collectors.worker.asked_resets import AskedResets
from headrace.collectors.worker.generators import generators_state, load_generators_state
from headrace.error_texts import message_of
from headrace.leases.frames import Payload

_METHODS = (MethodType, BuiltinMethodType, MethodWrapperType)


class OwnCollector(LoopParts):
    """The collector of one worker: questions name its parts and its methods.

    Args:
        loop: of the worker.
        worker_idx: the number of the worker.
        weights: of its policy.
        turn: the rollout under way.
        resets: that were asked for.
        receive_weights: called before a state is loaded.
        read_published: called before a state is taken.

    Attributes:
        has_loaded: whether a state was loaded, so that the rows must be opened anew.
    """

    def __init__(
        self,
        loop: CollectingLoop,
        worker_idx: int,
        weights: WeightReading,
        turn: RolloutTurn,
        resets: AskedResets,
        receive_weights: Callable[[], None],
        read_published: Callable[[], None],
    ) -> None:
        self._receive_weights, self._read_published = receive_weights, read_published
        self._loop, self._weights = loop, weights
        self._turn, self._resets = turn, resets
        self.has_loaded = False
        self.worker_idx = worker_idx

    @property
    def policy_version(self) -> int:
        """The version of the weights that act."""
        return self._weights.number

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

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next step depends on."""
        self._read_published()
        return {
            "rollout": self._turn.state_dict(),
            "resets": self._resets.state_dict(),
            "loop": self._loop.state_dict(),
            "generators": generators_state(),
            **self._weights.state_dict(),
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raises if `load_state_dict` would refuse a state."""
        loop, path = self._loop, f"worker{self.worker_idx}"
        check_num_envs(state["loop"], loop.stepper.num_envs, f"{path}/loop")
        worker_state(loop.stepper.num_envs, loop.steps)(path, state)
        loop.check_state(f"{path}/loop", state["loop"])
        self._weights.check_state(path, state)

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Goes on from a state, in place of the rollout under way.

        Returns:
            Whether every environment waits for a reset that was not asked for, and no rollout is under way.
        """
        self._receive_weights()
        self._weights.load_state_dict(state)
        if not self._loop.load_state_dict(state["loop"]):
            self._loop.restart(state["loop"]["fresh_seeds"])
        self._turn.load_state_dict(state["rollout"])
        self._resets.load_state_dict(state["resets"])
        load_generators_state(state["generators"])
        self.has_loaded = True
        return self._loop.all_wait and not self._resets and state["rollout"] is None

    def answer(self, question: Question, payload: Payload) -> tuple[Answer, bytes]:
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
    # Rules: collectors CQ4. It could be pickled with its object; the caller's call would then change that copy alone.
    if isinstance(value, _METHODS) and not isinstance(value.__self__, type | ModuleType):
        owner, name = type(value.__self__).__name__, value.__name__
        raise TypeError(
            f"expected a value, got the method {name} of a {owner}: a copy would act on a copy of the {owner}. map_fn "
            f"calls methods in the workers: map_fn('policy.{name}', ...) or map_fn('env.unwrapped.{name}', ...)"
        )
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"expected a value that can be pickled, got {type(value).__name__}: {message_of(error)}"
        ) from error
    return pickled
