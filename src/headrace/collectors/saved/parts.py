"""Checks of the parts of a state that collectors in this process and those with workers have in common."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.collectors.saved.checks import (
    Check,
    array,
    as_array,
    by_key,
    columns_of,
    flag,
    list_of,
    number,
    record,
    refuse,
    text,
    whole,
    within,
)
from headrace.spec import ArraySpec

_episode = list_of(number, 2)
stamps = by_key(whole(-1), whole())
counts = record(frames=whole(), episodes=list_of(_episode), stamps=stamps)
versions = record(newest=whole(), number=whole(), secret=text)
tally = record(
    newest=whole(),
    frames=whole(),
    batches=whole(),
    frames_discarded=whole(),
    episodes=whole(),
    recent=list_of(_episode),
    lag=list_of(number, 3),
    lags=by_key(whole(), whole()),
    lag_exceeded=whole(),
)


def turn(steps: int) -> Check:
    """Returns a check for how far a rollout of so many steps is."""
    return record(left=whole(0, steps), at_random=flag)


def lanes(num_envs: int) -> dict[str, Check]:
    """Returns the checks for what a batch needs of those before it, by name; see `BatchMaker.state_dict`."""
    longs = array("int64", [num_envs])
    kept = record(
        counts=array("int64", [num_envs], 0), ids=longs, next_t=longs, kept=by_key(text, _any_array)
    )

    def check_views(path: str, value: Any) -> None:
        kept(path, value)
        rows = int(np.sum(value["counts"]))
        for name, column in value["kept"].items():
            if len(column) != rows:
                refuse(within(path, f"kept/{name}"), f"{rows} rows, as counts says", column)

    return {"numbering": record(next_id=whole(), ids=longs, lengths=longs), "views": check_views}


def _any_array(path: str, value: Any) -> None:
    found = as_array(value)
    if found is None or not found.ndim or found.dtype.kind not in _NUMBERS:
        refuse(path, "an array of numbers", value)


def partial_rollout(
    known: Mapping[str, ArraySpec], observed: Mapping[str, ArraySpec], num_envs: int
) -> Check:
    """Returns a check for steps of a rollout; see `PartialRollout`.

    Args:
        known: the columns of a step, as far as they are known.
        observed: those that come with an observation.
        num_envs: n.
    """

    def check(path: str, value: Any) -> None:
        record(masked=array("bool", [None, num_envs]))(path, value)
        steps = len(value["masked"])

        def of(columns: Mapping[str, ArraySpec], required: Mapping[str, ArraySpec]) -> Check:
            forms = {
                name: array(each.dtype, [num_envs, steps, *each.shape]) for name, each in columns.items()
            }
            return columns_of(forms, required, _leading(num_envs, steps))

        required = {name: each for name, each in known.items() if name.partition("/")[0] in _OF_STEPS}
        record(
            columns=of(known, required),
            following=of(observed, observed),
            versions=array("int64", [num_envs, steps]),
            starts=array("bool", [steps, num_envs]),
        )(path, value)

    return check


def _leading(*lengths: int) -> Check:
    def check(path: str, value: Any) -> None:
        found = as_array(value)
        if found is None or found.dtype.kind not in _NUMBERS or found.shape[: len(lengths)] != lengths:
            refuse(path, f"an array of numbers of shape [{', '.join(map(str, lengths))}, ...]", value)

    return check


def batch_columns(num_envs: int) -> Check:
    """Returns a check for the columns of a batch: trees of arrays `[num_envs, T, ...]`, with the T of the mask."""

    def check_columns(path: str, value: Any) -> None:
        record(mask=array("bool", [num_envs, None]))(path, value)
        check = _trees(_leading(num_envs, len(value["mask"][0])))
        columns_of({}, _OF_BATCHES, check)(path, value)

    return check_columns


def _trees(check_leaf: Check) -> Check:
    def check(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, each in value.items():
                check(within(path, name), each)
        elif isinstance(value, tuple):
            for index, each in enumerate(value):
                check(within(path, index), each)
        else:
            check_leaf(path, value)

    return check


# The kinds of NumPy: bools, numbers, and those of ml_dtypes.
_NUMBERS = "biufcV"
_OF_STEPS = ("observation", "action", "reward", "terminated", "truncated")
_OF_BATCHES = (
    *_OF_STEPS,
    *("next_observation", "episode_id", "t", "policy_version", "mask"),
)
