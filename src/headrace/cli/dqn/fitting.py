"""Policies of `headrace train` for an environment of another command: they must fit it."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.dqn import checkpoint, problem
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.errors import CheckpointError


def environment_of(path: Path) -> str:
    """Returns the environment on which a policy was trained.

    Raises:
        CheckpointError: `path` is not a policy of `headrace train`, or does not name its environment.
    """
    result = checkpoint.about(path).get("result", {})
    if "environment" not in result:
        raise CheckpointError(f"{path}: does not name the environment of its training; give one")
    return str(result["environment"])


def load_for(path: Path, env_id: str, epsilon: float = 0.0) -> EpsilonGreedy:
    """Returns the policy of a file, for an environment that `problem.make(env_id)` builds.

    Args:
        path: a file of `headrace train`.
        env_id: the environment in which it is to act.
        epsilon: the probability of a random action.

    Raises:
        CheckpointError: `path` is not a policy of `headrace train`.
        click.BadParameter: the environment does not exist, or its observations or actions are not those of the policy.
    """
    policy = checkpoint.load(path, epsilon=epsilon)
    found = problem.describe(env_id)
    # A policy for images has stacks of frames as its inputs.
    trained = policy.shape.observation[1:] if len(policy.shape.observation) > 1 else policy.shape.observation
    expected = (tuple(trained), policy.shape.num_actions, policy.first_action)
    if expected != (found.observation, found.num_actions, found.first_action):
        raise click.BadParameter(
            f"{path} needs observations of shape {list(trained)} and {policy.shape.num_actions} actions from "
            f"{policy.first_action} on; {env_id} has {list(found.observation)} and {found.num_actions} from "
            f"{found.first_action} on",
            param_hint="'ENV'",
        )
    return policy
