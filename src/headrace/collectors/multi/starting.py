"""The start of workers: their tasks, and the processes or actors that run them."""

# Rules: collectors CX4, CY1

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.place import WorkerPlace
from headrace.collectors.handle.process import WorkerProcess, thread_variables
from headrace.collectors.loop.task import Task
from headrace.collectors.messages import Ready
from headrace.collectors.multi.options import MultiOptions
from headrace.collectors.ray.actors import RayActors
from headrace.collectors.ray.options import RayOptions
from headrace.collectors.sending import pickle_for_worker
from headrace.errors import SpecError
from headrace.spec import Signature


class WorkerStarter:
    """Starts workers, as processes of this machine or as actors of a cluster.

    Args:
        options: of the collector.

    Attributes:
        actors: of the cluster; None: workers are processes.

    Raises:
        ImportError, ValueError, ConnectionError: there is no such cluster.
        TypeError: an argument cannot be sent to a worker.
    """

    def __init__(self, options: MultiOptions) -> None:
        self._tasks = _pickled(options.worker_tasks(), options.create_env_kwargs)
        self._num_sub_threads = options.num_sub_threads
        self.actors: RayActors | None = None
        if options.backend == "ray":
            self.actors = RayActors(
                RayOptions.of(options.backend_options),
                thread_variables(options.num_sub_threads),
                options.start_timeout,
            )

    def new_place(self) -> WorkerPlace:
        """Starts a process or an actor."""
        return WorkerProcess(self._num_sub_threads) if self.actors is None else self.actors.new_worker()

    def start(self, handle: WorkerHandle, seed: int | None, restarts: int) -> None:
        """Sends a worker its task; see `WorkerHandle.start`."""
        handle.start(self._tasks[handle.worker_idx], seed, restarts)

    def close(self) -> None:
        """Ends the use of the cluster, after the actors."""
        if self.actors is not None:
            self.actors.close()


def _pickled(tasks: Sequence[Task], create_env_kwargs: Mapping[str, Any] | None) -> list[bytes]:
    """Returns the pickles of tasks; equal ones, with a policy that may be large, are pickled once."""
    names = [field.name for field in fields(Task)]
    parts = [tuple(id(getattr(task, name)) for name in names) for task in tasks]
    pickles = {
        part: _pickle(task, create_env_kwargs) for part, task in dict(zip(parts, tasks, strict=True)).items()
    }
    return [pickles[part] for part in parts]


def _pickle(task: Task, create_env_kwargs: Mapping[str, Any] | None) -> bytes:
    # In a task the environment's function has its arguments; here they are parts with the user's name for them.
    parts: dict[str, Any] = {"create_env_kwargs": create_env_kwargs}
    parts |= {field.name: getattr(task, field.name) for field in fields(Task) if field.name not in parts}
    parts["weight_sync_schemes"] = parts.pop("weight_ends")
    return pickle_for_worker(task, parts, "Make such parts in the worker, by create_env_fn or policy_factory")


def check_alike(first: Ready, other: Ready, name: str) -> None:
    """Raises if workers cannot fill one batch.

    Raises:
        SpecError: they differ in their columns, or in the number of their environments.
    """
    if other.num_envs != first.num_envs:
        raise SpecError(
            f"create_env_fn: expected as many environments in every worker, got {first.num_envs} in worker 0 and "
            f"{other.num_envs} in {name}"
        )
    if other.signature != first.signature:
        raise SpecError(
            f"create_env_fn: expected the same columns in every worker; worker 0 and {name} differ in "
            f"{_differences(first, other)}"
        )


def _differences(first: Ready, other: Ready) -> str:
    """Returns the columns in which two workers differ, such as "observation: float32[4] and float32[3]"."""
    one, two = (Signature.from_json(each.signature).columns for each in (first, other))
    return "; ".join(
        f"{name}: {one.get(name, 'nothing')} and {two.get(name, 'nothing')}"
        for name in dict.fromkeys((*one, *two))
        if one.get(name) != two.get(name)
    )
