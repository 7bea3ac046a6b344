"""The state of a collector with workers: of each worker, and of the part that they share."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.collectors.multi.group import WorkerGroup
from headrace.collectors.states import check_num_envs, check_parts
from headrace.collectors.surface.parts import Call
from headrace.collectors.updates.updater import WeightUpdater

_SECONDS = 30.0


def collected_state(group: WorkerGroup, updater: WeightUpdater) -> dict[str, Any]:
    """Returns "worker0", "worker1", ..., and "collector" for all of them.

    Raises:
        DeadlineExceeded: a worker did not finish its rollout within 30 s.
        WorkerDied: a worker is gone.
    """
    collection = group.collection
    with _between_rollouts(group):
        workers = group.call_each("state_dict", [((), {})] * len(group.handles))
        shared = collection.state_dict(_SECONDS) | {"versions": updater.state()}
    return {f"worker{i}": worker for i, worker in enumerate(workers)} | {"collector": shared}


@contextmanager
def _between_rollouts(group: WorkerGroup) -> Iterator[None]:
    """Lets the workers finish their rollouts and begin none. Paused workers go on for that, and are paused again."""
    with group.collection.admission.suspended():
        if group.status.pause_wanted is None:
            group.collection.finish_rollouts(_SECONDS)
        else:
            group.resume()
            try:
                group.collection.finish_rollouts(_SECONDS)
            finally:
                group.pause(_SECONDS)
        yield


def load_collected_state(group: WorkerGroup, updater: WeightUpdater, state: Mapping[str, Any]) -> None:
    """Goes on from a state.

    Raises:
        ValueError: a state of another number of workers, or of environments.
        SpecError: weights that do not fit a policy.
        DeadlineExceeded, WorkerDied: as `collected_state`.
    """
    workers = _workers_of(group, state)
    shared, collection = state["collector"], group.collection
    with _between_rollouts(group):
        calls: list[Call] = [((worker,), {}) for worker in workers]
        group.call_each("check_state", calls)
        continues = group.call_each("load_state_dict", calls)
        is_open = [
            worker["loop"]["is_open"] & goes_on for worker, goes_on in zip(workers, continues, strict=True)
        ]
        collection.load_state_dict(shared, is_open)
        updater.load_state(shared["versions"])


def _workers_of(group: WorkerGroup, state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    names = [f"worker{i}" for i in range(len(group.handles))]
    check_parts(state, ("collector", *names))
    if len(state) != 1 + len(names):
        raise ValueError(
            f"load_state_dict: expected the state of a collector of {len(names)} workers, got {len(state) - 1}"
        )
    check_parts(state["collector"], ("tally", "versions", "begun", "waiting", "lanes"))
    for name in names:
        check_parts(state[name], ("loop", "generators", "weights", "policy_version"))
        check_num_envs(state[name]["loop"], group.ready[0].num_envs)
    if len(state["collector"]["lanes"]) != len(group.collection.makers):
        raise ValueError("load_state_dict: expected the state of a collector with the same argument sync")
    return [state[name] for name in names]
