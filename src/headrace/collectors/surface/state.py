"""The state of a collector: it is saved, and another collector goes on from it."""

# Rules: collectors CQ3

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class StateSurface(ABC):
    """Methods that save and restore a collector."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next batch depends on: dicts, lists, numbers, strings and arrays.

        The weights of the policy are part of it, as are counters, numbers of episodes, generators, the present
        observations, what the policy remembers, and complete batches that were not handed out. The state of an
        environment is part of it if its unwrapped object has `state_dict()` and `load_state_dict(state)`. A wrapper
        with a state of its own needs both methods too, but for gymnasium's `TimeLimit`. The rows of a replay are not
        part of it: save the replay beside it.

        Raises:
            Closed: after `shutdown`.
            RuntimeError: called by the policy or an environment, in the middle of a step.

        >>> import headrace as hr
        >>> from headrace.testing import CounterEnv
        >>> with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4) as collector:
        ...     before = collector.next()
        ...     state = collector.state_dict()
        ...     after = collector.next()
        >>> with hr.Collector(lambda: CounterEnv(5), frames_per_batch=4) as another:
        ...     another.load_state_dict(state)
        ...     again = another.next()
        >>> before["t"], after["t"], (again["action"] == after["action"]).all()
        (array([[0, 1, 2, 3]]), array([[4, 0, 1, 2]]), np.True_)
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of a collector with the same arguments.

        If the state holds that of all environments, the next batches are those that would have followed, bit for bit.
        Otherwise all environments are reset, and trajectories start anew under ids that were not used. Batches that
        this collector has collected and not handed out are dropped.

        Args:
            state: as `state_dict` returned it.

        Raises:
            ValueError: of another number of environments or workers, or not a state of a collector.
            SpecError: weights that do not fit the policy; nothing changed.
            RuntimeError: after `start()`; or called by the policy or an environment.
            Closed: after `shutdown`.
        """
