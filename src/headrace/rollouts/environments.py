"""The environments of a rollout worker: their creation, and their own limits on the length of an episode."""

# Rules: views-rollouts R1, H1

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EnvContext:
    """The argument of an `env_creator` that takes one.

    Attributes:
        worker_index: that of `RolloutWorker(worker_index=...)`.
        env_index: 0 to num_envs - 1.
        config: further entries, which `get` reads.

    >>> EnvContext(0, 3).get("difficulty", "easy")
    'easy'
    """

    worker_index: int
    env_index: int
    config: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns an entry of the config."""
        return self.config.get(key, default)


def create_environments(env_creator: Callable[..., Any], num_envs: int, worker_index: int) -> list[Any]:
    """Calls `env_creator` for each environment, with an `EnvContext` if it has a positional argument without default.

    If a call raises, the environments that were made are closed.

    Raises:
        TypeError: not a callable, or it returns None.
    """
    if not callable(env_creator):
        raise TypeError(
            f"env_creator: expected a callable that returns an environment, got {type(env_creator).__name__}"
        )
    takes_context = _takes_argument(env_creator)
    envs: list[Any] = []
    try:
        for index in range(num_envs):
            env = env_creator(EnvContext(worker_index, index)) if takes_context else env_creator()
            if env is None:
                raise TypeError("env_creator: expected it to return an environment, got None")
            envs.append(env)
    except BaseException:
        close_environments(envs)
        raise
    return envs


def _nothing() -> None:
    pass


def close_environments(envs: list[Any]) -> None:
    """Closes all environments that have `close`, also when one raises; the first error is raised at the end."""
    errors = []
    for env in envs:
        try:
            # An environment of several agents need not have it (views-rollouts M1).
            getattr(env, "close", _nothing)()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def raise_limit(env: Any, horizon: int) -> None:
    """Raises the limit of an environment on the length of an episode to `horizon`, where it is smaller."""
    layer = env
    while layer is not None:
        limit = getattr(layer, "__dict__", {}).get("_max_episode_steps")
        if isinstance(limit, int) and limit < horizon:
            layer._max_episode_steps = horizon
        layer = getattr(layer, "__dict__", {}).get("env")
    spec = getattr(env, "spec", None)
    limit = getattr(spec, "max_episode_steps", None)
    if spec is not None and limit is not None and limit < horizon:
        try:
            spec.max_episode_steps = horizon
        except AttributeError:
            return


def _takes_argument(call: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    # An argument with a default is left alone: `lambda level=level: ...`, or partial(gymnasium.make, name).
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.kind is inspect.Parameter.VAR_POSITIONAL
        or (parameter.kind in single and parameter.default is inspect.Parameter.empty)
        for parameter in parameters
    )
