"""Checks of the state of a worker."""

# Rules: collectors CQ3

from __future__ import annotations

import random
from typing import Any

import numpy as np

from headrace.collectors.saved.checks import (
    Check,
    array,
    list_of,
    optional,
    record,
    refuse,
    whole,
    within,
)
from headrace.collectors.saved.parts import turn


def worker_state(num_envs: int, steps: int) -> Check:
    """Returns a check for the state of a worker, but for its loop and its weights.

    Args:
        num_envs, steps: n and T.
    """
    return record(
        rollout=optional(turn(steps)),
        resets=record(
            envs=list_of(whole(0, num_envs - 1)),
            seed=optional(record(seeds=list_of(whole(), num_envs), seed=whole())),
        ),
        generators=_generators,
        policy_version=whole(-1),
        weights_ahead=optional(record(weights=_any, policy_version=whole(-1))),
    )


def _any(path: str, value: Any) -> None:
    """Accepts weights, which are compared with those of the policy."""


def _generators(path: str, value: Any) -> None:
    record(random=list_of(_any, 3), numpy=_any, torch=optional(array("uint8", [None])))(path, value)
    version, internal, gauss = value["random"]
    try:
        random.Random().setstate((version, tuple(internal), gauss))
    except Exception:
        refuse(within(path, "random"), "what random.getstate returns", value["random"])
    try:
        np.random.RandomState().set_state(value["numpy"])
    except Exception:
        refuse(within(path, "numpy"), "what numpy.random.get_state returns", value["numpy"])
