"""The arguments of a collector, checked once."""

# Rules: collectors CR1, CR3, CR13

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from headrace.collectors.batches.handing_out import Postproc
from headrace.collectors.batches.view_columns import check_view_columns
from headrace.collectors.devices import Devices, worker_devices
from headrace.collectors.loop.task import Task
from headrace.collectors.updates.models import POLICY, find_model
from headrace.collectors.updates.numbering import tracked_version
from headrace.envs import environment_factory, environment_seeds
from headrace.envs.columns import check_info_columns
from headrace.envs.make import check_num_envs
from headrace.policies import check_exploration_type, check_policy, views_of
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.tables.description.rules import ItemRule, checked_rules
from headrace.views.causality import acting_views
from headrace.weights import WeightScheme


@dataclass(frozen=True, kw_only=True)
class CollectorOptions(Task):
    """The arguments that every collector takes; see `Collector` for the meaning of each."""

    total_frames: int
    replay_buffer: Any
    items: Sequence[ItemRule] | None
    split_trajs: bool = False
    postproc: Postproc | None = None
    device: Any = None
    storing_device: Any = None
    weight_sync_schemes: Mapping[str, WeightScheme | None] | None = None
    track_policy_version: object = False

    def __post_init__(self) -> None:
        if self.policy is not None and self.policy_factory is not None:
            raise TypeError("policy, policy_factory: expected one of them, got both")
        if self.policy is not None:
            check_policy(self.policy)
        if self.policy_factory is not None and not callable(self.policy_factory):
            raise TypeError(f"policy_factory: expected a callable, got {type(self.policy_factory).__name__}")
        frames = self.frames_per_batch
        if not _is_int(frames) or frames < 1:
            raise ValueError(f"frames_per_batch: expected a positive int, got {frames!r}")
        self._check_total()
        for name in ("max_frames_per_traj", "init_random_frames"):
            value = getattr(self, name)
            if value is not None and not _is_int(value):
                raise ValueError(f"{name}: expected an int or None, got {value!r}")
        check_exploration_type(self.exploration_type)
        for name in ("reset_at_each_iter", "reset_when_done", "set_truncated", "split_trajs"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}: expected a bool, got {getattr(self, name)!r}")
        if self.postproc is not None and not callable(self.postproc):
            raise TypeError(f"postproc: expected a callable or None, got {type(self.postproc).__name__}")
        self.devices()
        check_num_envs(self.num_envs)
        check_info_columns(self.info_columns or {})
        self._check_views()
        if self.seed is not None:
            environment_seeds(self.seed, self.num_envs)
        if self.replay_buffer is not None:
            check_replay("replay_buffer", self.replay_buffer, TO_WRITE)
        self._check_items()
        self._check_models()
        tracked_version(self.track_policy_version)

    def _check_total(self) -> None:
        total, frames = self.total_frames, self.frames_per_batch
        if not _is_int(total) or (total != -1 and total < 1):
            raise ValueError(f"total_frames: expected -1 (no end) or a positive int, got {total!r}")
        if total > 0 and total % frames:
            below, above = total // frames * frames, -(-total // frames) * frames
            near = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"total_frames: expected a multiple of frames_per_batch={frames}, got {total}; the nearest is {near}"
            )

    def _check_views(self) -> None:
        views = views_of(self.policy, self.views)
        check_view_columns(views)
        acting_views(views, self.info_columns or {})

    def _check_items(self) -> None:
        if self.items is None:
            return
        if self.replay_buffer is None:
            raise ValueError("items: expected only together with replay_buffer")
        for rule in checked_rules(self.items):
            if not isinstance(rule, ItemRule):
                raise TypeError(f"items: expected ItemRule, got {type(rule).__name__}")
            self.replay_buffer.table(rule.table)

    def devices(self, workers: int = 1) -> list[Devices]:
        """Returns the devices of each worker."""
        return worker_devices(
            workers,
            device=self.device,
            storing_device=self.storing_device,
            env_device=self.env_device,
            policy_device=self.policy_device,
        )

    def _check_models(self) -> None:
        # Rules: collectors CW6
        for model_id, scheme in (self.weight_sync_schemes or {}).items():
            if scheme is not None and not isinstance(scheme, WeightScheme):
                raise TypeError(
                    f"weight_sync_schemes: {model_id}: expected a publishing end of hr.weights or None, got "
                    f"{type(scheme).__name__}"
                )
        if self.policy is not None:
            for model_id in self.model_ids:
                find_model(self.policy, model_id)

    @property
    def model_ids(self) -> list[str]:
        """The ids of the models whose weights can be replaced, the policy first."""
        return list(dict.fromkeys((POLICY, *(self.weight_sync_schemes or ()))))

    @property
    def schemes(self) -> dict[str, WeightScheme]:
        """The publishing ends of models that have one of their own."""
        schemes = (self.weight_sync_schemes or {}).items()
        return {model_id: scheme for model_id, scheme in schemes if scheme is not None}

    def task(self) -> Task:
        """Returns the work of a loop in this process."""
        work = {field.name: getattr(self, field.name) for field in fields(Task)}
        (devices,) = self.devices()
        work |= {"policy_device": devices.policy, "env_device": devices.env}
        return Task(**work | {"replay": None if self.replay_buffer is None else self.replay_buffer.signature})

    def worker_task(self) -> Task:
        """Returns the work of a loop in another process, which builds its own environments.

        Raises:
            TypeError: `create_env_fn` builds none.
        """
        factory = environment_factory(self.create_env_fn, self.create_env_kwargs)
        return replace(self.task(), create_env_fn=factory, create_env_kwargs=None)

    def warn_of_rounding(self, num_envs: int, *, stacklevel: int) -> None:
        """Warns if a batch has more frames than `frames_per_batch`."""
        # Rules: collectors CR1
        frames = self.steps(num_envs) * num_envs
        if frames != self.frames_per_batch:
            warnings.warn(
                f"frames_per_batch={self.frames_per_batch} is no multiple of {num_envs} environments: "
                f"a batch has {frames} frames",
                UserWarning,
                stacklevel=stacklevel + 1,
            )

    def rules(self) -> list[ItemRule]:
        """Returns the rules for items; by default each transition is an item once its next observation is stored."""
        # Rules: collectors CF2
        if self.items is not None:
            return list(self.items)
        return [ItemRule(name, length=1, lookahead=1) for name in self.replay_buffer.table_names]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
