"""Weights in the object store of a Ray cluster: one copy of each set on every machine that reads it."""

# Rules: collectors CW7, CY2

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.closing import Closing
from headrace.errors import Closed, DeadlineExceeded
from headrace.weights.layout import WeightLayout
from headrace.weights.versions import next_version

_READ_SECONDS = 30.0
# How long one question for a newer set waits, and how often its thread looks whether it is to end.
_ASK_SECONDS, _LOOK_SECONDS = 10.0, 0.2
_AWAITED = "the newest weights in Ray"

_Announced: TypeAlias = tuple[int, list[Any]]


def import_ray() -> Any:
    """Returns the module ray.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError('Ray is not installed: pip install "headrace[ray]"') from error


class _Newest:
    """The actor that knows the newest set. It owns the sets, so they outlive their publisher."""

    def __init__(self) -> None:
        # Every import of this module would wait 30 ms for it, and only the actor needs it.
        self._asyncio = importlib.import_module("asyncio")
        self._announced: _Announced = -1, []
        self._changed = self._asyncio.Condition()

    async def put(self, version: int, data: NDArray[np.uint8]) -> None:
        """Puts a set into the object store, in which the publisher's copy ends with this call, and announces it."""
        reference = import_ray().put(data)
        async with self._changed:
            self._announced = version, [reference]
            self._changed.notify_all()

    async def newest(self) -> _Announced:
        """Returns the newest set's version, and its reference in a list, so that Ray does not fetch it here."""
        return self._announced

    async def other_than(self, version: int, timeout: float) -> int:
        """Returns the newest version as soon as it is another one, or after `timeout` seconds."""
        async with self._changed:
            with suppress(TimeoutError):
                await self._asyncio.wait_for(
                    self._changed.wait_for(lambda: self._announced[0] != version), timeout
                )
            return self._announced[0]


class Ray(Closing):
    """Publisher between the machines of a Ray cluster. The first set is published at once as version 0.

    A set is fetched once by each machine whose receivers read it, and stays readable when its publisher dies. This
    process must be connected to a cluster (`ray.init`), as must the processes of the receivers: tasks and actors are.

    Args:
        weights: a pytree of arrays (NumPy, torch, JAX); its names, shapes and dtypes are those of all later sets.

    Raises:
        ImportError: Ray is not installed.
        RuntimeError: this process is not connected to a cluster.
        SpecError: a leaf is not an array; the message has its path.
    """

    def __init__(self, weights: Any) -> None:
        ray = import_ray()
        if not ray.is_initialized():
            raise RuntimeError(
                "hr.weights.Ray: expected a process that is connected to Ray; call ray.init() first"
            )
        self._layout = WeightLayout(weights)
        # One question of each receiver waits in the actor at any time.
        self._newest: Any = ray.remote(_Newest).options(num_cpus=0, max_concurrency=10_000).remote()
        self._lock = threading.Lock()
        self._version = -1
        self.publish(weights)

    @property
    def version(self) -> int:
        """The number of the newest set."""
        return self._version

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set without waiting for readers. After the call the caller may change its arrays.

        Args:
            weights: a pytree of arrays like the first one.
            version: its number, larger than the last one; None for the next number.

        Returns:
            The number.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path. Nothing is published.
            TypeError, ValueError: `version` is not an integer above the last one and below 2^31.
            Closed: after `close`.
            DeadlineExceeded: the actor that keeps the weights did not answer within 30 s; the number is used up.
        """
        arrays = self._layout.arrays(weights)
        with self._lock:
            if self._newest is None:
                raise Closed("these weights are closed: expected publish before close")
            number = next_version(self._version, version)
            data = np.empty(self._layout.nbytes, np.uint8)
            for place, array in zip(self._layout.places, arrays, strict=True):
                np.copyto(place.view(data, 0), array)
            # The number is used also if the call fails: the actor may have got the set all the same.
            self._version = number
            _get(
                self._newest.put.remote(number, data),
                "the actor that keeps the weights in Ray to take a set",
            )
            return number

    def receiver(self) -> RayReceiver:
        """Returns a new receiver. Give it to a task or an actor of the cluster, or use it here.

        Raises:
            Closed: after `close`.
        """
        with self._lock:
            if self._newest is None:
                raise Closed("these weights are closed: expected receiver before close")
            return RayReceiver(self._newest, self._layout)

    def close(self) -> None:
        """Ends publishing. Existing receivers can still read the last set, which goes with the last of them."""
        with self._lock:
            self._newest = None


def _get(reference: Any, event: str) -> Any:
    """Returns the value of a reference, or raises DeadlineExceeded after 30 s."""
    ray = import_ray()
    try:
        return ray.get(reference, timeout=_READ_SECONDS)
    except ray.exceptions.GetTimeoutError as error:
        raise DeadlineExceeded(f"waited {_READ_SECONDS:g} s for {event}") from error


class RayReceiver:
    """Receiver of `Ray`. `Ray.receiver` makes it; it can be pickled to other processes of the cluster.

    A thread of it asks for newer versions from the first look at `version` on.
    """

    def __init__(self, newest: Any, layout: WeightLayout) -> None:
        self._newest: Any = newest
        self._layout = layout
        self._watch: _Watch | None = None

    @property
    def version(self) -> int:
        """The number of the newest set, as far as it is known here: one read of an attribute.

        A publication is known within the time of a message.

        Raises:
            Closed: after `close`.
        """
        if self._watch is None:
            self._watch = _Watch(self._open(), self._ask()[0])
        return self._watch.version

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest set, and a copy of the set.

        Raises:
            Closed: after `close`.
            DeadlineExceeded: it did not arrive within 30 s.
        """
        version, (reference,) = self._ask()
        data: NDArray[np.uint8] = np.array(_get(reference, _AWAITED))
        if self._watch is not None:
            self._watch.version = max(version, self._watch.version)
        return version, self._layout.tree(place.view(data, 0) for place in self._layout.places)

    def _open(self) -> Any:
        if self._newest is None:
            raise Closed("this receiver is closed")
        return self._newest

    def _ask(self) -> _Announced:
        announced: _Announced = _get(self._open().newest.remote(), _AWAITED)
        return announced

    def close(self) -> None:
        """Ends the receiver. More calls do nothing."""
        self._newest = None
        if self._watch is not None:
            self._watch.stop()

    def __del__(self) -> None:
        if getattr(self, "_watch", None) is not None:
            self.close()

    def __reduce__(self) -> tuple[Callable[..., RayReceiver], tuple[Any, ...]]:
        return RayReceiver, (self._open(), self._layout)


class _Watch:
    """Knows the newest version, which a thread asks for. The thread does not keep the receiver alive."""

    def __init__(self, newest: Any, version: int) -> None:
        self.version = version
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._ask, args=(newest,), daemon=True, name="headrace-ray-weights"
        )
        self._thread.start()

    def _ask(self, newest: Any) -> None:
        ray = import_ray()
        try:
            while not self._stopped.is_set():
                answer = newest.other_than.remote(self.version, _ASK_SECONDS)
                while not self._stopped.is_set() and not ray.wait([answer], timeout=_LOOK_SECONDS)[0]:
                    pass
                if not self._stopped.is_set():
                    self.version = max(self.version, ray.get(answer))
        except Exception:  # The cluster or the publisher's actor is gone: the last version stays.
            self._stopped.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)
