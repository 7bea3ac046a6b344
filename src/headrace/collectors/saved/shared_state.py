"""Checks of the part of a state that all workers of a collector share."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headrace.collectors.saved.checks import (
    Check,
    by_key,
    flag,
    list_of,
    optional,
    record,
    refuse,
    text,
    whole,
    within,
)
from headrace.collectors.saved.parts import batch_columns, counts, lanes, partial_rollout, tally, versions
from headrace.spec import ArraySpec

# Rollouts of a worker for the batch that was asked for, and those ahead of the learner.
_MOST_IN_BATCHES, _MOST_AHEAD = 1, 2


def shared_state(
    workers: int,
    num_envs: int,
    *,
    makers: int,
    columns: Mapping[str, ArraySpec],
    observed: Collection[str],
    model_ids: Sequence[str],
) -> Check:
    """Returns a check for the part that W workers of n environments share.

    Args:
        workers, num_envs: W and n.
        makers: of batches: one for all workers, or one for each.
        columns: of a step, as far as they are known.
        observed: names of those that come with an observation.
        model_ids: of the models whose weights can be replaced.
    """
    own = num_envs * (workers if makers == 1 else 1)
    number, batch = whole(0, workers - 1), batch_columns(own)
    steps = partial_rollout(columns, {name: columns[name] for name in observed}, num_envs)
    of_worker = _worker_number(workers)
    publication = record(
        weights=by_key(_one_of(model_ids), _any),
        number=whole(),
        workers=optional(_not_empty(list_of(number), "the numbers of workers")),
    )
    parts = record(
        tally=tally,
        versions=versions,
        admission=_admission(workers),
        waiting=list_of(
            record(columns=batch, counts=_not_empty(by_key(of_worker, counts), "the counts of workers"))
        ),
        unreturned=optional(record(columns=batch, worker=number)),
        is_asked=flag,
        is_running=flag,
        partial=by_key(of_worker, record(steps=steps, counts=counts, is_complete=flag)),
        lanes=list_of(record(**lanes(own)), makers),
        held=record(is_holding=flag, number=whole(), publications=list_of(publication)),
    )

    def check(path: str, value: Any) -> None:
        parts(path, value)
        _check_ahead(path, value, workers)

    return check


def _check_ahead(path: str, value: Any, workers: int) -> None:
    """Each complete rollout is ahead of the learner, and is none any more when it is handed out."""
    ahead = value["admission"]["ahead"]
    for worker in range(workers):
        name, partial = str(worker), value["partial"].get(str(worker))
        complete = sum(name in each["counts"] for each in value["waiting"])
        complete += partial is not None and partial["is_complete"]
        if ahead.count(worker) < complete:
            refuse(within(path, "admission/ahead"), f"the number {worker} at least {complete} times", ahead)


def _admission(workers: int) -> Check:
    """Returns a check for the rollouts that were begun, and those that are owed: at most two of each worker."""

    def check(path: str, value: Any) -> None:
        record(by_batch=flag)(path, value)
        most = _MOST_IN_BATCHES if value["by_batch"] else _MOST_AHEAD
        record(
            begun=whole(),
            owed=list_of(whole(0, most), workers),
            ahead=list_of(whole(0, workers - 1)),
            publication_due=flag,
        )(path, value)

    return check


def _any(path: str, value: Any) -> None:
    """Accepts weights, which are compared with those of their models."""


def _worker_number(workers: int) -> Check:
    return _one_of([str(number) for number in range(workers)])


def _one_of(known: Sequence[str]) -> Check:
    def check(path: str, value: Any) -> None:
        text(path, value)
        if value not in known:
            refuse(path, f"one of {', '.join(known)}", value)

    return check


def _not_empty(check: Check, expected: str) -> Check:
    def check_all(path: str, value: Any) -> None:
        check(path, value)
        if not value:
            refuse(path, expected, value)

    return check_all
