"""The arguments of a collector, checked once."""

# Rules: collectors CR1, CR3, CR13

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import numpy as np

from headrace.checks import check_bits, check_mapping
from headrace.collectors.arguments import check_names
from headrace.collectors.batches.handing_out import Postproc
from headrace.collectors.batches.rollout_store import check_rollout_rows
from headrace.collectors.batches.view_columns import check_view_columns
from headrace.collectors.devices import Devices, worker_devices
from headrace.collectors.loop.task import Task
from headrace.collectors.updates.models import POLICY, find_model
from headrace.collectors.updates.numbering import tracked_version
from headrace.envs import environment_seeds
from headrace.envs.columns import check_info_columns
from headrace.envs.make import check_num_envs
from headrace.policies import check_exploration_type, check_policy, views_of
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.tables.description.rules import ItemRule, checked_rules
from headrace.views.causality import acting_views
from headrace.weights import WeightScheme

_POSITIONAL = ("create_env_fn", "policy")
Constructor = TypeVar("Constructor", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class CollectorOptions(Task):
    """The checked arguments of a collector; see `Collector` for the meaning of each."""

    total_frames: int = -1
    replay_buffer: Any = None
    items: Sequence[ItemRule] | None = None
    seed: int | None = None
    split_trajs: bool = False
    postproc: Postproc | None = None
    device: Any = None
    storing_device: Any = None
    weight_sync_schemes: Mapping[str, WeightScheme | None] | None = None
    track_policy_version: object = False

    @classmethod
    def of(cls, caller: str, known: type, **arguments: Any) -> Self:
        """Returns the checked arguments of a collector.

        Args:
            caller: the class, for messages.
            known: the TypedDict of its keyword arguments.
            **arguments: the given ones.

        Raises:
            TypeError: an unknown argument; a required one is missing; or a value of another type.
            ValueError, KeyError: a value that does not fit.
        """
        # Rules: collectors CR13
        check_names(caller, [name for name in arguments if name not in _POSITIONAL], known)
        for name, parameter in inspect.signature(cls).parameters.items():
            if parameter.default is parameter.empty and name not in arguments:
                raise TypeError(f"{caller}: expected the keyword argument {name}, got none")
        plain = {name: _plain(value) for name, value in arguments.items()}
        for name, value in plain.items():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int):
                    check_bits(name, number)
        return cls(**plain)

    def __post_init__(self) -> None:
        if self.policy is not None and self.policy_factory is not None:
            raise TypeError("policy, policy_factory: expected one of them, got both")
        if self.policy is not None:
            check_policy(self.policy)
        self._policy_factories()
        self._check_frames()
        self._check_total()
        for name in ("max_frames_per_traj", "init_random_frames"):
            value = getattr(self, name)
            if value is not None and not is_int(value):
                raise ValueError(f"{name}: expected an int or None, got {value!r}")
        check_exploration_type(self.exploration_type)
        for name in ("reset_at_each_iter", "reset_when_done", "set_truncated", "split_trajs"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name}: expected a bool, got {getattr(self, name)!r}")
        if self.postproc is not None and not callable(self.postproc):
            raise TypeError(f"postproc: expected a callable or None, got {type(self.postproc).__name__}")
        self.devices()
        check_num_envs(self.num_envs)
        self._check_rollouts()
        if self.info_columns is not None:
            check_info_columns(self.info_columns)
        self._check_views()
        if self.seed is not None:
            environment_seeds(self.seed, self.num_envs)
        if self.replay_buffer is not None:
            check_replay("replay_buffer", self.replay_buffer, TO_WRITE)
        self._check_items()
        self._check_models()
        tracked_version(self.track_policy_version)

    def _policy_factories(self) -> list[Any]:
        """Returns the factory of each worker's policy; None: it has none."""
        # Rules: collectors CP2
        given = self.policy_factory
        factories = list(given) if isinstance(given, list | tuple) else [given] * self.workers
        if len(factories) != self.workers:
            raise ValueError(
                f"policy_factory: expected one callable, or a list of {self.workers}, one for each worker, got "
                f"{len(factories)}"
            )
        for factory in factories:
            if not callable(factory) and (factory is not None or isinstance(given, list | tuple)):
                raise TypeError(f"policy_factory: expected a callable, got {type(factory).__name__}")
        return factories

    def _check_frames(self) -> None:
        frames = self.frames_per_batch
        if not is_int(frames) or frames < 1:
            raise ValueError(f"frames_per_batch: expected a positive int, got {frames!r}")

    def _check_rollouts(self) -> None:
        """Refuses rollouts that no store holds, as far as these are known before anything is built."""
        check_rollout_rows(self.steps(self.num_envs), self.num_envs)

    @property
    def asked_frames(self) -> int:
        """Frames of a batch, before they are rounded up; `total_frames` is a multiple of them."""
        return self.frames_per_batch

    def _check_total(self) -> None:
        total, frames = self.total_frames, self.asked_frames
        if not is_int(total) or (total != -1 and total < 1):
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

    @property
    def workers(self) -> int:
        """The number of worker processes; 1 inline."""
        return 1

    def devices(self) -> list[Devices]:
        """Returns the devices of each worker."""
        return worker_devices(
            self.workers,
            device=self.device,
            storing_device=self.storing_device,
            env_device=self.env_device,
            policy_device=self.policy_device,
        )

    def _check_models(self) -> None:
        # Rules: collectors CW6
        if self.weight_sync_schemes is not None:
            check_mapping(
                "weight_sync_schemes", self.weight_sync_schemes, "publishing ends by model, or None"
            )
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

    def task(self, worker_idx: int = 0) -> Task:
        """Returns the work of the loop in this process, or in a worker."""
        work = {field.name: getattr(self, field.name) for field in fields(Task)}
        devices = self.devices()[worker_idx]
        work |= {"policy_device": devices.policy, "env_device": devices.env}
        work["policy_factory"] = self._policy_factories()[worker_idx]
        return Task(**work | {"replay": None if self.replay_buffer is None else self.replay_buffer.signature})

    def rules(self) -> list[ItemRule]:
        """Returns the rules for items; by default each transition is an item once its next observation is stored."""
        # Rules: collectors CF2
        if self.items is not None:
            return list(self.items)
        return [ItemRule(name, length=1, lookahead=1) for name in self.replay_buffer.table_names]


def _plain(value: Any) -> Any:
    """Returns numbers and flags of NumPy, as settings that were computed have them, as those of Python."""
    if type(value) in (list, tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def shows_arguments(options: type[CollectorOptions], known: type) -> Callable[[Constructor], Constructor]:
    """Gives a constructor `(self, create_env_fn, policy, **known)` the signature that tools show.

    Keyword arguments that the constructor names itself stay.

    Args:
        options: have the defaults of the arguments.
        known: the TypedDict of the keyword arguments.
    """
    given, kind = inspect.signature(options).parameters, inspect.Parameter.POSITIONAL_OR_KEYWORD
    positional = [given[name].replace(kind=kind) for name in _POSITIONAL]
    keywords = [given[name] for name in known.__annotations__]

    def show(constructor: Constructor) -> Constructor:
        parameters = inspect.signature(constructor).parameters.values()
        own = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
        constructor.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("self", kind), *positional, *own, *keywords]
        )
        return constructor

    return show


def warn_of_rounding(asked: int, frames: int, num_envs: int, *, stacklevel: int) -> None:
    """Warns if a batch has more frames than were asked for.

    Args:
        asked: frames of a batch, as the caller has given them.
        frames: of a batch without masked rows.
        num_envs: N, the environments of a batch.
        stacklevel: of the caller.
    """
    # Rules: collectors CR1
    if frames != asked:
        warnings.warn(
            f"frames_per_batch={asked} is no multiple of {num_envs} environments: a batch has {frames} frames",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def is_int(value: object) -> bool:
    """Returns whether a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)
