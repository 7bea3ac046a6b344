"""The state of a collector with workers: of each worker, and of the part that they share."""

# Rules: collectors CQ1, CQ3

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.multi.group import WorkerGroup
from headrace.collectors.saved.shared_state import shared_state
from headrace.collectors.states import check_num_envs, check_parts
from headrace.collectors.surface.parts import Call
from headrace.collectors.updates.updater import WeightUpdater
from headrace.spec import Signature

_SECONDS = 30.0


def collected_state(group: WorkerGroup, updater: WeightUpdater) -> dict[str, Any]:
    """Returns "worker0", "worker1", ..., and "collector" for all of them.

    Raises:
        DeadlineExceeded: a worker did not finish its step within 30 s.
        WorkerDied: a worker is gone.
    """
    with _standing_still(group) as left:
        workers = group.call_each("state_dict", [((), {})] * len(group.handles), left())
        in_progress = [worker["rollout"] is not None for worker in workers]
        # First: it counts sets of other publishers, which workers may have taken over.
        versions = updater.state()
        shared = group.collection.state_dict(in_progress, left())
        shared |= {"versions": versions, "held": group.weights.held_state()}
    return {f"worker{i}": worker for i, worker in enumerate(workers)} | {"collector": shared}


@contextmanager
def _standing_still(group: WorkerGroup) -> Iterator[Callable[[], float]]:
    """Keeps the workers between two steps, all of them reported, for the time of a `with` block.

    It gives a function that returns the seconds that are left of the call.
    """
    end = time.monotonic() + _SECONDS

    def left() -> float:
        return end - time.monotonic()

    with group.pauses.alone(_SECONDS), group.collection.admission.suspended():
        was_paused = group.status.pause_wanted is not None
        try:
            while _restarting(group) or group.status.pause_wanted is None:
                group.pauses.end()  # A pause would keep a process that is started from coming back.
                event = "to be started again"
                group.status.wait_for_none(lambda: _restarting(group), left(), event)
                group.pauses.begin(left())
            yield left
        finally:
            if not was_paused:
                group.pauses.end()
            elif group.status.pause_wanted is None:
                group.pauses.begin(_SECONDS)


def _restarting(group: WorkerGroup) -> list[WorkerHandle]:
    return [handle for handle in group.handles if handle.status.is_restarting]


def load_collected_state(group: WorkerGroup, updater: WeightUpdater, state: Mapping[str, Any]) -> None:
    """Goes on from a state.

    Raises:
        ValueError: a state of another number of workers, or of environments.
        SpecError: weights that do not fit a policy.
        DeadlineExceeded, WorkerDied: as `collected_state`.
    """
    workers = _workers_of(group, state)
    shared = state["collector"]
    with _standing_still(group) as left:
        held = group.weights.checked_held(shared["held"])
        calls: list[Call] = [((worker,), {}) for worker in workers]
        group.call_each("check_state", calls, left(), caller="load_state_dict")
        group.weights.end_hold()
        # Once a worker has loaded its state, the others must follow.
        for handle, stands_still in zip(
            group.handles, group.call_each("load_state_dict", calls), strict=True
        ):
            handle.note_loaded(stands_still=stands_still)
        # Its publications are none of the learner's, so the admission of the state comes behind them.
        updater.load_state(shared["versions"], [_next_weights(worker) for worker in workers])
        group.collection.load_state_dict(shared, [worker["rollout"] for worker in workers])
        group.weights.load_held(
            held, is_holding=shared["held"]["is_holding"], number=shared["held"]["number"]
        )


def _next_weights(worker: Mapping[str, Any]) -> tuple[Any, int]:
    """Returns the weights that a worker's next rollout begins with, and their number."""
    saved = worker["weights_ahead"] or worker
    return saved["weights"], saved["policy_version"]


def _workers_of(group: WorkerGroup, state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    names = [f"worker{i}" for i in range(len(group.handles))]
    check_parts(state, ("collector", *names))
    if len(state) != 1 + len(names):
        raise ValueError(
            f"load_state_dict: expected the state of a collector of {len(names)} workers, got {len(state) - 1}; "
            "nothing was changed"
        )
    parts = (
        *("tally", "versions", "admission", "waiting", "unreturned"),
        *("is_asked", "is_running", "partial", "lanes", "held"),
    )
    check_parts(state["collector"], parts, "collector")
    for name in names:
        own = ("loop", "rollout", "resets", "generators", "weights", "policy_version", "weights_ahead")
        check_parts(state[name], own, name)
        check_num_envs(state[name]["loop"], group.ready[0].num_envs, f"{name}/loop")
    lanes = state["collector"]["lanes"]
    if isinstance(lanes, list | tuple) and len(lanes) != len(group.collection.makers):
        raise ValueError(
            "load_state_dict: collector/lanes: expected the state of a collector with the same argument sync; nothing "
            "was changed"
        )
    _check_shared(group, state["collector"])
    return [state[name] for name in names]


def _check_shared(group: WorkerGroup, shared: Mapping[str, Any]) -> None:
    ready = group.ready[0]
    check = shared_state(
        len(group.handles),
        ready.num_envs,
        makers=len(group.collection.makers),
        columns=Signature.from_json(ready.signature).columns,
        observed=ready.observed,
        model_ids=list(group.weights.models),
    )
    check("collector", shared)
