"""Environments of dm_env, as single gymnasium environments."""

# Rules: collectors CE2, CE7

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
from dm_env import Environment, StepType, TimeStep, specs
from gymnasium import spaces

from headrace.errors import SpecError


class DmEnv(gymnasium.Env[Any, Any]):
    """A dm_env environment with the interface of gymnasium; `unwrapped` is the environment itself.

    A step of type LAST with discount 0 is terminated, with a larger discount truncated. The discount of each step is
    `info["discount"]`; it is 1 at a reset. Lists in the specs are tuples in the spaces.

    dm_env has no seeds. A seed of `reset` is a warning: give it to the callable that builds the environment.

    Args:
        env: the environment. Its reward is one number.

    Raises:
        SpecError: a spec that no array of fixed shape and dtype can hold; a reward that is not one number.

    >>> from headrace.testing.dm_envs import DmCounterEnv
    >>> env = DmEnv(DmCounterEnv(2))
    >>> env.action_space, env.reset()
    (Discrete(4, dtype=int32), (array([0, 0, 0]), {'discount': 1.0}))
    >>> env.step(1)[1:]
    (1.0, False, False, {'discount': 1.0})
    >>> env.step(1)[1:]
    (5.0, True, False, {'discount': 0.0})
    """

    def __init__(self, env: Environment) -> None:
        shape = getattr(env.reward_spec(), "shape", None)
        if shape != ():
            raise SpecError(
                f"reward_spec: expected one number, got {env.reward_spec()}; an environment of several agents or "
                "copies is given as a PettingZoo parallel or gymnasium vector environment"
            )
        self.env = env
        observation_spec, self._action_spec = env.observation_spec(), env.action_spec()
        self.observation_space = space_of(observation_spec, "observation_spec")
        self.action_space = space_of(self._action_spec, "action_spec")
        self._observation_has_lists = _has_lists(observation_spec)
        self._action_has_lists = _has_lists(self._action_spec)
        self._has_warned = False

    @property
    def unwrapped(self) -> Any:
        """The environment of dm_env."""
        return self.env

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - gymnasium's interface
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Raises:
            SpecError: the environment returns no first step.
        """
        if seed is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"seed: {type(self.env).__name__} is a dm_env environment, which takes no seed at reset; give one to "
                "the callable that builds it (create_env_fn). Random actions are seeded all the same",
                UserWarning,
                stacklevel=2,
            )
        first = self.env.reset()
        if not isinstance(first, TimeStep) or first.step_type != StepType.FIRST:
            raise SpecError(f"reset: expected a TimeStep of type FIRST, got {_kind(first)}")
        return self._observation(first), {"discount": 1.0}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes one transition.

        Raises:
            SpecError: the environment has begun another episode without the last step of this one.
        """
        if self._action_has_lists:
            action = _as_spec(self._action_spec, action)
        timestep = self.env.step(action)
        discount, kind = timestep.discount, timestep.step_type
        info = {"discount": discount}
        if kind == StepType.MID:
            return self._observation(timestep), timestep.reward, False, False, info
        if kind != StepType.LAST or discount is None:
            raise SpecError(f"step: expected a TimeStep of type MID or LAST, got {_kind(timestep)}")
        terminated = not discount > 0
        return self._observation(timestep), timestep.reward, terminated, not terminated, info

    def get_wrapper_attr(self, name: str) -> Any:
        """Returns an attribute of the environment itself, else of this interface to it."""
        return getattr(self.env, name) if hasattr(self.env, name) else super().get_wrapper_attr(name)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()

    def __str__(self) -> str:
        return f"<DmEnv of {self.env}>"

    def _observation(self, timestep: TimeStep) -> Any:
        return _with_tuples(timestep.observation) if self._observation_has_lists else timestep.observation


def space_of(spec: Any, path: str) -> spaces.Space[Any]:
    """Returns the gymnasium space of a tree of dm_env specs.

    Raises:
        SpecError: a spec that is not an array's, with its path.

    >>> space_of({"arm": specs.BoundedArray((2,), "float32", -1, 1), "grip": specs.DiscreteArray(3)}, "action_spec")
    Dict('arm': Box(-1.0, 1.0, (2,), float32), 'grip': Discrete(3, dtype=int32))
    """
    if isinstance(spec, dict):
        return spaces.Dict({name: space_of(each, f"{path}/{name}") for name, each in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([space_of(each, f"{path}/{i}") for i, each in enumerate(spec)])
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values), dtype=spec.dtype.type)
    if not isinstance(spec, specs.Array) or spec.dtype.kind not in "biuf":
        raise SpecError(f"{path}: expected a spec of an array of numbers, got {spec}")
    low, high = _bounds(spec)
    return spaces.Box(
        np.broadcast_to(low, spec.shape), np.broadcast_to(high, spec.shape), dtype=spec.dtype.type
    )


def _bounds(spec: specs.Array) -> tuple[Any, Any]:
    if isinstance(spec, specs.BoundedArray):
        return spec.minimum, spec.maximum
    if spec.dtype.kind == "f":
        return np.array(-np.inf, spec.dtype), np.array(np.inf, spec.dtype)
    if spec.dtype.kind == "b":
        return np.array(False), np.array(True)
    limits = np.iinfo(spec.dtype)
    return np.array(limits.min, spec.dtype), np.array(limits.max, spec.dtype)


def _has_lists(spec: Any) -> bool:
    if isinstance(spec, dict):
        return any(map(_has_lists, spec.values()))
    if isinstance(spec, list | tuple):
        return type(spec) is not tuple or any(map(_has_lists, spec))
    return False


def _with_tuples(tree: Any) -> Any:
    """Returns an observation with tuples for its lists and named tuples."""
    if isinstance(tree, dict):
        return {name: _with_tuples(each) for name, each in tree.items()}
    return tuple(map(_with_tuples, tree)) if isinstance(tree, list | tuple) else tree


def _as_spec(spec: Any, action: Any) -> Any:
    """Returns an action with the containers of its spec."""
    if isinstance(spec, dict):
        return {name: _as_spec(each, action[name]) for name, each in spec.items()}
    if not isinstance(spec, list | tuple):
        return action
    parts = [_as_spec(each, part) for each, part in zip(spec, action, strict=True)]
    if isinstance(spec, list):
        return parts
    return type(spec)(*parts) if hasattr(spec, "_fields") else tuple(parts)


def _kind(timestep: Any) -> str:
    if not isinstance(timestep, TimeStep):
        return type(timestep).__name__
    return f"one of type {timestep.step_type!r} with discount {timestep.discount!r}"
