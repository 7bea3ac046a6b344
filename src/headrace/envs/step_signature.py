"""The signature of the steps of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.envs.make import make_stepper
from headrace.envs.recognition import is_environment
from headrace.spec import ArraySpec, Signature


def step_signature(observed: Signature, acted: Signature, extras: Mapping[str, Any]) -> Signature:
    """Returns the columns of one step.

    Args:
        observed, acted: see `VectorStepper`.
        extras: further entries of the tree.

    >>> observed, acted = (Signature({name: ArraySpec((), "int64")}) for name in ("observation", "action"))
    >>> list(step_signature(observed, acted, {}).columns)
    ['action', 'observation', 'reward', 'terminated', 'truncated']
    """
    tree = dict(observed.tree)
    tree["action"] = acted.tree["action"]
    tree["reward"] = ArraySpec((), np.float32)
    tree["terminated"] = ArraySpec((), np.bool_)
    tree["truncated"] = ArraySpec((), np.bool_)
    tree.update(extras)
    return Signature(tree)


def signature_of_env(env: Any, extras: Mapping[str, Any]) -> Signature:
    """Returns the columns of one step of an environment, which it does not reset.

    Args:
        env: as for `make_stepper`. An environment that is built here is closed; a ready one stays open.
        extras: further entries of the tree.
    """
    stepper = make_stepper(env)
    try:
        return step_signature(stepper.observation_signature, stepper.action_signature, extras)
    finally:
        if not is_environment(env):
            stepper.close()
