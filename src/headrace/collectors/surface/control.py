"""Questions to a collector: attributes and calls of the environments, the policy and the replay."""

# Rules: collectors CQ1, CQ4 to CQ6

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from headrace.collectors.paths import follow_path

Call: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]


class ControlSurface(ABC):
    """Methods that ask the parts of a collector. Any thread may call them while another iterates."""

    @property
    @abstractmethod
    def replay_buffer(self) -> Any:
        """The replay that is written to, or None."""

    @property
    @abstractmethod
    def _num_workers(self) -> int:
        """The number of workers; 1 inline."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises if the collector was shut down, or belongs to another process."""

    @abstractmethod
    def _call_each(self, path: str, calls: Sequence[Call]) -> list[Any]:
        """Calls what a path names on the own collectors of the first workers (inline: on this one).

        Args:
            path: of a method.
            calls: arguments and keyword arguments, one pair for each of these workers.

        Returns:
            One result for each of them.
        """

    def getattr_env(self, name: str) -> Any:
        """Returns an attribute of the first environment (of the first worker), searched through its wrappers.

        Raises:
            AttributeError: there is no such attribute.
            TypeError: the value is in a worker and cannot be pickled.
            DeadlineExceeded: the worker did not answer within 30 s.
            WorkerDied: the worker is gone.
            Closed: after `shutdown`.
        """
        return self._first("_env_attribute", name)

    def getattr_policy(self, name: str) -> Any:
        """Returns an attribute of the policy that acts (in the first worker).

        Raises: as `getattr_env`.
        """
        return self._first("_policy_attribute", name)

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
        return self._call_each("_part", [((path,), {})] * self._num_workers)

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
            Exception: raised by the method, with the traceback of the worker as a note.
            TypeError, DeadlineExceeded, WorkerDied, Closed: as `getattr_env`.

        >>> import headrace as hr
        >>> with hr.Collector("CartPole-v1", frames_per_batch=10) as collector:
        ...     collector.map_fn("getattr_env", [["gravity"]])
        [9.8]
        """
        args = self._one_each("list_of_args", list_of_args, ())
        kwargs = self._one_each("list_of_kwargs", list_of_kwargs, {})
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

    def _first(self, path: str, *args: Any) -> Any:
        """Calls a method on the own collector of the first worker alone."""
        return self._call_each(path, [(args, {})])[0]

    def _one_each(self, name: str, given: Sequence[Any] | None, missing: Any) -> Sequence[Any]:
        count = self._num_workers
        if given is None:
            return [missing] * count
        if len(given) != count:
            raise ValueError(f"{name}: expected {count}, one for each worker, got {len(given)}")
        return given
