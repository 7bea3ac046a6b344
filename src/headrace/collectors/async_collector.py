"""Collecting in one worker process, while the learner learns."""

from __future__ import annotations

from typing import Any, Unpack

from headrace.collectors.arguments import WorkerArguments, check_names
from headrace.collectors.multi.options import MultiOptions
from headrace.collectors.multi_collector import MultiCollector
from headrace.collectors.options import shows_arguments


class AsyncCollector(MultiCollector):
    """Collects in one worker process that runs ahead by at most two rollouts.

    It is a `MultiCollector` of one worker with `sync=False`, and batches have the same rows as those of a `Collector`.

    Args:
        create_env_fn, policy: as for `Collector`.
        sync: None or False.
        **options: as for `MultiCollector`.

    Raises:
        ValueError: `sync=True`; or environments for several workers.
        Exception: see `MultiCollector`.

    >>> with AsyncCollector("CartPole-v1", frames_per_batch=40, num_envs=4, total_frames=80, seed=0) as collector:
    ...     [batch.shape for batch in collector]
    [(4, 10), (4, 10)]
    """

    _constructors = 2

    @shows_arguments(MultiOptions, WorkerArguments)
    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        sync: bool | None = None,
        **options: Unpack[WorkerArguments],
    ) -> None:
        if sync:
            raise ValueError(
                "sync: expected None or False, since this collector runs ahead, got True; use "
                "hr.MultiCollector(..., sync=True)"
            )
        check_names(type(self).__name__, options, WorkerArguments)
        try:
            super().__init__(create_env_fn, policy, sync=False, num_workers=1, **options)
        except BaseException as error:
            if hasattr(self, "_group"):  # Ctrl-C may come when the other constructor has returned.
                self._group.abandon(error)
            raise

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._group.handles[0].process.pid
