"""Questions to the environments, the policy and the replay of a collector, and resets of its environments."""

# Rules: collectors CQ1, CQ2, CQ4 to CQ6

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.paths import follow_path
from headrace.collectors.surface.parts import CollectorParts


class ControlSurface(CollectorParts):
    """Methods that reach the parts of a collector. Any thread may call them while another iterates."""

    @property
    def replay_buffer(self) -> Any:
        """The replay that is written to, or None."""
        return self._options.replay_buffer

    def getattr_env(self, name: str) -> Any:
        """Returns an attribute of the first environment (of the first worker), searched through its wrappers.

        Raises:
            AttributeError: there is no such attribute.
            TypeError: the value is in a worker, and cannot be pickled or is a method: `map_fn` calls methods there.
            DeadlineExceeded: the worker did not answer within 30 s.
            WorkerDied: the worker is gone.
            Closed: after `shutdown`.
        """
        return self._first("_env_attribute", name, "getattr_env")

    def getattr_policy(self, name: str) -> Any:
        """Returns an attribute of the policy that acts (in the first worker).

        Raises: as `getattr_env`.
        """
        return self._first("_policy_attribute", name, "getattr_policy")

    def getattr_rb(self, name: str) -> Any:
        """Returns an attribute of the replay.

        Raises:
            AttributeError: there is no such attribute, or no replay.
            Closed: after `shutdown`.
        """
        self._check_usable()
        if self.replay_buffer is None:
            raise AttributeError(f"getattr_rb: {name}: expected a collector with replay_buffer")
        return getattr(self.replay_buffer, name)

    def get_distant_attr(self, path: str) -> list[Any]:
        """Returns what a path names on the own collector of each worker (inline: on this one).

        Args:
            path: attributes and items, such as `policy.layers[0]` or `env.unwrapped.level`. It begins with `env` (the
                first environment), `policy`, `worker_idx` or `policy_version`; inline also with `replay_buffer`.

        Returns:
            One value for each worker; those of other processes are copies.

        Raises:
            ValueError: not a path.
            AttributeError, KeyError, IndexError: there is no such part.
            TypeError, DeadlineExceeded, WorkerDied, Closed: as `getattr_env`.
        """
        return self._call_each("_part", [((path,), {})] * self._layout.workers, "get_distant_attr")

    def map_fn(
        self,
        method: str,
        list_of_args: Sequence[Sequence[Any]] | None = None,
        list_of_kwargs: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Any]:
        """Calls a method on the own collector of each worker (inline: on this one).

        Args:
            method: its path, such as `env.unwrapped.set_level` or `policy.eval`; see `get_distant_attr`.
            list_of_args: the arguments for each worker; None: none.
            list_of_kwargs: the keyword arguments for each worker; None: none.

        Returns:
            One result for each worker.

        Raises:
            ValueError: not a path, or a list whose length is not the number of workers.
            TypeError: arguments that are not a tuple or list, or cannot be sent to a worker: no worker was asked; or a
                result that cannot be pickled.
            Exception: raised by the method, with the traceback of the worker as a note.
            DeadlineExceeded, WorkerDied, Closed: as `getattr_env`.

        >>> import headrace as hr
        >>> with hr.Collector("CartPole-v1", frames_per_batch=10) as collector:
        ...     collector.map_fn("getattr_env", [["gravity"]])
        [9.8]
        """
        args = self._one_each("list_of_args", list_of_args, ())
        kwargs = self._one_each("list_of_kwargs", list_of_kwargs, {})
        for each in args:
            if not isinstance(each, list | tuple):
                raise TypeError(
                    f"list_of_args: expected a tuple of the arguments for each worker, got {each!r}; a tuple of one is "
                    f"({each!r},)"
                )
        for each in kwargs:
            if not isinstance(each, Mapping):
                raise TypeError(f"list_of_kwargs: expected a dict for each worker, got {each!r}")
        return self._call_each(method, list(zip(args, kwargs, strict=True)))

    def cascade_execute(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """Calls what a path names on this collector, and returns the result.

        Args:
            path: attributes and items, such as `policy.layers['head'].reset`.
            args, kwargs: of the call.

        Raises:
            ValueError: not a path.
            AttributeError, KeyError, IndexError: there is no such part.
            Closed: after `shutdown`.
        """
        self._check_usable()
        return follow_path(self, path)(*args, **kwargs)

    @property
    def worker_idx(self) -> int:
        """The number of the worker, for the collector inside of one.

        Raises:
            RuntimeError: this collector is not in a worker.
        """
        raise RuntimeError(
            "worker_idx: this collector is not in a worker; batch.worker_idx tells the worker of a batch"
        )

    def reset(self, reset_idx: Sequence[bool] | None = None) -> None:
        """Resets all environments, or those that are true in `reset_idx`, before their next step.

        A trajectory that is cut carries no flag: its last step is neither terminated nor truncated. The next step of
        the environment begins a trajectory with a new id. An environment that waits because of
        `reset_when_done=False` goes on.

        Args:
            reset_idx: one bool for each environment, or for each agent of it, worker after worker; None: all.

        Raises:
            ValueError: another number of entries; an environment, or an agent, that cannot be reset alone.
            TypeError: entries that are not bools.
            Closed: after `shutdown`.
        """
        self._check_usable()
        if reset_idx is None:
            self._reset_envs(None)
            return
        chosen, num_envs = np.asarray(reset_idx), self._layout.num_envs
        if chosen.shape != (num_envs,):
            raise ValueError(
                f"reset_idx: expected {num_envs} bools, one for each environment, or for each agent of it, got shape "
                f"{chosen.shape}"
            )
        if chosen.dtype != np.bool_:
            raise TypeError(f"reset_idx: expected bools, got {chosen.dtype}")
        self._check_reset_together(chosen)
        self._reset_envs(np.flatnonzero(chosen))

    def _check_reset_together(self, chosen: NDArray[np.bool_]) -> None:
        """Refuses a reset of some lanes of an environment whose lanes are reset together."""
        together = self._layout.reset_together
        parts = chosen.reshape(-1, together)
        if np.array_equal(parts.any(axis=1), parts.all(axis=1)):
            return
        if self._layout.lanes_may_wait:
            raise ValueError(
                f"reset_idx: expected the same for all {together} agents of an environment, got {chosen.tolist()}: "
                "several agents begin their episodes together"
            )
        raise ValueError(
            "reset_idx: this vector environment resets itself and cannot be reset by mask; reset all of it, or give "
            "single environments, or one with autoreset disabled"
        )

    def _first(self, path: str, name: str, caller: str) -> Any:
        """Calls a method on the own collector of the first worker alone."""
        return self._call_each(path, [((name,), {})], caller)[0]

    def _one_each(self, name: str, given: Sequence[Any] | None, missing: Any) -> Sequence[Any]:
        count = self._layout.workers
        if given is None:
            return [missing] * count
        if len(given) != count:
            raise ValueError(f"{name}: expected {count}, one for each worker, got {len(given)}")
        return given
