"""The arguments of a collector with workers, checked once."""

# Rules: collectors CE1, CR2, CR3, CR12, CV8

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headrace.checks import check_count, check_seconds
from headrace.collectors.arguments import Backend
from headrace.collectors.batches.rollout_store import check_rollout_rows
from headrace.collectors.devices import check_policy_devices
from headrace.collectors.loop.task import Task
from headrace.collectors.multi.threads import default_threads
from headrace.collectors.options import CollectorOptions, is_int
from headrace.collectors.ray.options import RayOptions
from headrace.envs import worker_factories
from headrace.weights import WeightReceiver


@dataclass(frozen=True, kw_only=True)
class MultiOptions(CollectorOptions):
    """The checked arguments of a collector with workers; see `MultiCollector`."""

    # An int, or one for each worker.
    frames_per_batch: Any
    sync: bool
    num_workers: int | None = None
    restart_workers: bool = True
    max_restarts: int = 3
    start_timeout: float = 60.0
    worker_timeout: float | None = None
    num_threads: int | None = None
    num_sub_threads: int = 1
    update_at_each_batch: bool = False
    backend: Backend = "process"
    backend_options: Mapping[str, Any] | None = None
    preemptive_threshold: float | None = None
    max_staleness: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sync, bool):
            raise TypeError(f"sync: expected True or False, got {self.sync!r}")
        if not isinstance(self.restart_workers, bool):
            raise TypeError(f"restart_workers: expected True or False, got {self.restart_workers!r}")
        if not is_int(self.max_restarts) or self.max_restarts < 0:
            raise ValueError(f"max_restarts: expected an int of 0 or more, got {self.max_restarts!r}")
        start_timeout = check_seconds(self.start_timeout, "start_timeout")
        if start_timeout is None or start_timeout <= 0:
            raise ValueError(f"start_timeout: expected seconds > 0, got {self.start_timeout}")
        timeout = check_seconds(self.worker_timeout, "worker_timeout")
        if timeout is not None and timeout <= 0:
            raise ValueError(f"worker_timeout: expected seconds > 0, or None, got {timeout:g}")
        if self.backend not in ("process", "ray"):
            raise ValueError(f"backend: expected 'process' or 'ray', got {self.backend!r}")
        if self.backend == "ray":
            RayOptions.of(self.backend_options)
        elif self.backend_options is not None:
            raise ValueError(
                f"backend_options: expected None with backend='process', got {self.backend_options!r}"
            )
        self._factories()
        super().__post_init__()
        check_count("num_sub_threads", self.num_sub_threads, 1)
        if self.num_threads is not None:
            check_count("num_threads", self.num_threads, 1)
        if self.backend == "process":  # An actor of Ray may have other devices than this machine.
            check_policy_devices(self.devices())
        if not isinstance(self.update_at_each_batch, bool):
            raise TypeError(
                f"update_at_each_batch: expected True or False, got {self.update_at_each_batch!r}"
            )
        if self.update_at_each_batch and self.policy is None:
            raise ValueError(
                "update_at_each_batch: expected a policy object, whose weights are published, got none"
            )
        self._check_threshold()
        self._check_staleness()
        storing = {devices.storing for devices in self.devices()}
        if self.sync and len(storing) > 1:
            raise ValueError(
                f"storing_device: expected one device for the batches of all workers, since sync is True, got "
                f"{self.storing_device!r}"
            )

    def _check_threshold(self) -> None:
        threshold: object = self.preemptive_threshold
        if threshold is None:
            return
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise ValueError(
                f"preemptive_threshold: expected a number from 0 to 1, or None, got {threshold!r}"
            )
        if not self.sync:
            raise ValueError(
                f"preemptive_threshold: expected None with sync=False, whose batches wait for one worker each, got "
                f"{threshold}"
            )

    @property
    def enough_workers(self) -> int:
        """The number of workers after whose rollouts the others stop."""
        if self.preemptive_threshold is None:
            return self.workers
        # Not 28 where 0.29 * 100 is 28.999999999999996.
        return max(1, int(self.preemptive_threshold * self.workers + 1e-9))

    def _check_staleness(self) -> None:
        # Rules: collectors CV8
        if self.max_staleness is None:
            return
        if not is_int(self.max_staleness) or self.max_staleness < 0:
            raise ValueError(
                f"max_staleness: expected an int of 0 or more, or None, got {self.max_staleness!r}"
            )
        if self.sync:
            raise ValueError(
                f"max_staleness: expected None with sync=True, whose batches always come from the newest weights, got "
                f"{self.max_staleness}"
            )
        if self.replay_buffer is not None:
            raise ValueError(
                f"max_staleness: expected None with replay_buffer, got {self.max_staleness}; bound the age of what is "
                "sampled by the rate limiter of its table"
            )

    @property
    def copy_threads(self) -> int:
        """The number of threads that copy batches."""
        return default_threads(self.workers) if self.num_threads is None else self.num_threads

    def _factories(self) -> list[Any]:
        return list(
            worker_factories(
                self.create_env_fn, num_workers=self.num_workers, create_env_kwargs=self.create_env_kwargs
            )
        )

    @property
    def workers(self) -> int:
        """W, the number of workers."""
        return len(self._factories())

    def _check_frames(self) -> None:
        frames = self.frames_per_batch
        if not isinstance(frames, list | tuple):
            super()._check_frames()
            return
        if len(frames) != self.workers or not all(is_int(each) and each > 0 for each in frames):
            raise ValueError(
                f"frames_per_batch: expected a positive int, or {self.workers} of them, one for each worker, got "
                f"{frames!r}"
            )

    def _check_rollouts(self) -> None:
        # Workers write rows of a replay into its own pages.
        if self.replay_buffer is None:
            steps = -(-max(self.worker_frames()) // self.num_envs)
            check_rollout_rows(steps, self.num_envs)

    @property
    def asked_frames(self) -> int:
        """See `CollectorOptions.asked_frames`; of a list it is the sum."""
        frames = self.frames_per_batch
        return sum(frames) if isinstance(frames, list | tuple) else frames

    def worker_frames(self) -> list[int]:
        """Returns the frames of a rollout of each worker, before they are rounded up to whole steps."""
        frames, workers = self.frames_per_batch, self.workers
        if isinstance(frames, list | tuple):
            return list(frames)
        return [-(-frames // workers) if self.sync else frames] * workers

    # Kept as long as workers may be started: a worker opens the memory of an end through this process.
    @cached_property
    def _weight_ends(self) -> Mapping[str, WeightReceiver]:
        return {model_id: scheme.receiver() for model_id, scheme in self.schemes.items()}

    def worker_tasks(self) -> list[Task]:
        """Returns the work of each worker, which builds its own environments."""
        frames = self.worker_frames()
        return [
            replace(
                self.task(worker_idx),
                create_env_fn=factory,
                create_env_kwargs=None,
                frames_per_batch=frames[worker_idx],
                postproc=None if self.replay_buffer is None else self.postproc,
                model_paths=tuple(self.weight_sync_schemes or ()),
                weight_ends=self._weight_ends,
            )
            for worker_idx, factory in enumerate(self._factories())
        ]
