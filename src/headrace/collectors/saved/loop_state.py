"""Checks of the state of a loop: its environments, random actions, and what the policy remembers."""

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
    missing,
    of_type,
    optional,
    record,
    refuse,
    text,
    whole,
    within,
)
from headrace.envs.protocol import AsyncStepper, VectorStepper


def loop_state(
    stepper: VectorStepper | AsyncStepper, observations: Mapping[str, Any], recording: Mapping[str, Any]
) -> Check:
    """Returns a check for the state of a loop.

    Args:
        stepper: of the environments.
        observations: the present ones, which those of the state are alike.
        recording: the present state of what records their steps.
    """
    num_envs = stepper.num_envs
    lengths = array("int64", [num_envs], 0)
    return record(
        begun=whole(),
        has_acted=flag,
        is_fresh=flag,
        fresh_seeds=optional(list_of(whole(), num_envs)),
        observations=like(observations),
        is_open=array("bool", [num_envs]),
        recording=_recording_state(recording, num_envs),
        counter=record(returns=array("float64", [num_envs]), lengths=lengths),
        stepper=_stepper_state(stepper),
    )


def like(own: Any) -> Check:
    """Returns a check for a value of the form of another one: dicts of the same names, arrays of the same shape."""
    if isinstance(own, Mapping):
        known = {name: like(each) for name, each in own.items()}
        return columns_of(known, known, _unknown)
    if isinstance(own, np.ndarray):
        return array(own.dtype, own.shape)
    if isinstance(own, list):
        return list_of(_any_whole, len(own)) if all(isinstance(each, int) for each in own) else _all_like(own)
    return of_type(f"a {type(own).__name__}", type(own))


_any_whole = whole(-(1 << 63))


def _all_like(own: list[Any]) -> Check:
    checks = [like(each) for each in own]

    def check(path: str, value: Any) -> None:
        list_of(lambda _path, _value: None, len(own))(path, value)
        for index, (check_each, each) in enumerate(zip(checks, value, strict=True)):
            check_each(within(path, index), each)

    return check


def _unknown(path: str, value: Any) -> None:
    """Accepts what is not read."""


def _recording_state(own: Mapping[str, Any], num_envs: int) -> Check:
    further = {name: like(each) for name, each in own.items() if name not in ("random", "lengths", "policy")}
    return record(
        random=_random_state(own["random"], num_envs),
        lengths=array("int64", [num_envs], 0),
        policy=_policy_state(own["policy"], num_envs),
        **further,
    )


def _random_state(own: Mapping[str, Any], num_envs: int) -> Check:
    """Returns a check for the state of random actions. Actions that were not drawn here yet may have any form."""
    drawn = own["drawn"]
    block = len(next(iter(drawn.values()))) if drawn else own["cursor"]

    def check_drawn(path: str, value: Any) -> None:
        (like(drawn) if drawn and value else by_key(text, _block(block, num_envs)))(path, value)

    def check(path: str, value: Any) -> None:
        record(
            generators=list_of(_generator("PCG64"), num_envs),
            drawn=check_drawn,
            cursor=whole(0, block),
            cursors=optional(array("int64", [num_envs], 0)),
        )(path, value)
        cursors = value["cursors"]
        if cursors is not None and (np.asarray(cursors) > block).any():
            refuse(within(path, "cursors"), f"at most {block}", cursors)
        if not value["drawn"] and (value["cursor"] < block or cursors is not None):
            missing(within(path, "drawn/action"))

    return check


def _block(block: int, num_envs: int) -> Check:
    def check(path: str, value: Any) -> None:
        found = as_array(value)
        if found is None or found.shape[:2] != (block, num_envs):
            refuse(path, f"an array [{block}, {num_envs}, ...]", value)

    return check


def _generator(name: str) -> Check:
    """Returns a check for the state of a bit generator of NumPy."""

    def check(path: str, value: Any) -> None:
        trial = getattr(np.random, name)(0)
        try:
            trial.state = value
        except Exception:
            refuse(path, f"the state of a generator {name}", value)

    return check


def _any_generator(path: str, value: Any) -> None:
    names = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
    record(bit_generator=text)(path, value)
    if value["bit_generator"] not in names:
        refuse(within(path, "bit_generator"), f"one of {', '.join(names)}", value["bit_generator"])
    _generator(value["bit_generator"])(path, value)


def _policy_state(own: Mapping[str, Any] | None, num_envs: int) -> Check:
    if own is None:
        return _unknown
    views = own["views"]
    return optional(
        record(
            states=like(own["states"]),
            views=_unknown if views is None else optional(_history_state(views, num_envs)),
        )
    )


def _history_state(own: Mapping[str, Any], num_envs: int) -> Check:
    known = {name: like(each) for name, each in own["rows"].items()}
    return record(
        rows=columns_of(known, (), _unknown),
        step=whole(),
        steps=optional(array("int64", [num_envs], 0)),
        begins=array("int64", [num_envs]),
        has_seen=flag,
    )


def _stepper_state(stepper: VectorStepper | AsyncStepper) -> Check:
    own = {name: like(each) for name, each in stepper.own_state().items()}
    if "ended" in own:  # Those environments that have ended.
        own["ended"] = array("int64", [None], 0)
    count = len(stepper.environments)
    layers = list_of(_unknown)  # `check_environments` has each environment try its own.
    return record(
        environments=list_of(optional(layers), count),
        generators=list_of(optional(_any_generator), count),
        **own,
    )
