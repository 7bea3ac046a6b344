"""The names and types of the arguments of collectors."""

# Rules: collectors CR13

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from headrace.collectors.batches.handing_out import Postproc
from headrace.policies import ExplorationType
from headrace.spec import ArraySpec
from headrace.tables.description.rules import ItemRule
from headrace.views import View
from headrace.weights import WeightScheme

Backend = Literal["process", "ray"]


class CollectorArguments(TypedDict, total=False):
    """The keyword arguments that every collector takes; see `Collector` for the meaning of each."""

    policy_factory: Callable[[], Any] | Sequence[Callable[[], Any]] | None
    frames_per_batch: Required[int | Sequence[int]]
    total_frames: int
    device: Any
    storing_device: Any
    env_device: Any
    policy_device: Any
    create_env_kwargs: Mapping[str, Any] | None
    max_frames_per_traj: int | None
    init_random_frames: int | None
    exploration_type: ExplorationType | None
    reset_at_each_iter: bool
    reset_when_done: bool
    set_truncated: bool
    split_trajs: bool
    postproc: Postproc | None
    replay_buffer: Any
    items: Sequence[ItemRule] | None
    num_envs: int
    views: Mapping[str, View] | None
    info_columns: Mapping[str, ArraySpec] | None
    seed: int | None
    weight_sync_schemes: Mapping[str, WeightScheme | None] | None
    track_policy_version: object


class WorkerArguments(CollectorArguments, total=False):
    """The keyword arguments of every collector with workers; see `MultiCollector` for the meaning of each."""

    restart_workers: bool
    max_restarts: int
    start_timeout: float
    worker_timeout: float | None
    num_threads: int | None
    num_sub_threads: int
    update_at_each_batch: bool
    backend: Backend
    backend_options: Mapping[str, Any] | None
    preemptive_threshold: float | None
    max_staleness: int | None


class MultiArguments(WorkerArguments, total=False):
    """The keyword arguments of `MultiCollector`."""

    sync: Required[bool]
    num_workers: int | None


def check_names(caller: str, given: Iterable[str], known: type) -> None:
    """Refuses keyword arguments that a collector does not have; the message says what to do.

    Args:
        caller: the class, for the message.
        given: names of keyword arguments.
        known: the TypedDict of the keyword arguments of the class.

    Raises:
        TypeError: an unknown name.
    """
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"{caller}: unexpected keyword argument {name!r}; {_advice(name, names)}")


def _advice(name: str, known: Mapping[str, Any]) -> str:
    if name in MultiArguments.__annotations__:
        return "hr.MultiCollector has it"
    similar = difflib.get_close_matches(name, known, 1)
    return (f"did you mean {similar[0]}? " if similar else "") + f"expected {', '.join(known)}"
