"""The signature that a replay needs to take in what a collector gives."""

# Rules: collectors CF1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.columns import collected_signature
from headrace.envs import is_environment, make_stepper, new_columns
from headrace.spec import ArraySpec, Signature


def signature(
    create_env_fn: Any,
    policy: Any = None,
    create_env_kwargs: Mapping[str, Any] | None = None,
    info_columns: Mapping[str, ArraySpec] | None = None,
) -> Signature:
    """The columns that a collector over these environments writes.

    Builds one environment and closes it; calls the policy once, to see which further columns it gives. A ready
    environment stays open: it is the caller's. It is reset where there is a policy, which has to see an observation.

    Args:
        create_env_fn, policy, create_env_kwargs, info_columns: as for `Collector`.

    >>> sorted(signature("CartPole-v1").columns)
    ['action', 'observation', 'reward', 'terminated', 'truncated']
    """
    stepper = make_stepper(create_env_fn, create_env_kwargs=create_env_kwargs, info_columns=info_columns)
    try:
        extras: Mapping[str, Any] = {}
        if policy is not None:
            row = new_columns(stepper.observation_signature, stepper.num_envs)
            stepper.reset(row)
            actor = Actor(policy, stepper.observation_signature, stepper.action_signature, stepper.num_envs)
            actor(row)
            extras = actor.extras
        return collected_signature(stepper.observation_signature, stepper.action_signature, extras)
    finally:
        if not is_environment(create_env_fn):
            stepper.close()
