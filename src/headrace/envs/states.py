"""States of environments, for collectors that go on where another one stopped."""

# Rules: collectors CQ3

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from headrace.error_texts import text_of

if TYPE_CHECKING:
    import torch


class EnvironmentStates:
    """Saves and restores the environments of a stepper.

    An environment has a state if its unwrapped object has `state_dict` and `load_state_dict`. Wrappers may have both
    methods, too; the counter of `TimeLimit` is saved in any case. The generator of a gymnasium environment
    (`np_random`) is saved always.

    Attributes:
        environments: see `VectorStepper`.
    """

    environments: tuple[Any, ...]

    def on_device(self, device: torch.device) -> Mapping[str, torch.Tensor] | None:  # noqa: ARG002 - for subclasses
        """Returns None: observations are kept as NumPy arrays alone; see `VectorStepper`."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the environments; see `VectorStepper`."""
        return {
            "environments": [_state_of(env) if _has_state(env) else None for env in self.environments],
            "generators": [_generator_state(env) for env in self.environments],
            **self.own_state(),
        }

    def own_state(self) -> dict[str, Any]:
        """Returns the parts of the state that are the stepper's own, not those of its environments."""
        return {}

    def can_continue(self, state: Mapping[str, Any]) -> bool:
        """Returns whether the environments have all their states in `state`, and can load them."""
        saved = state["environments"]
        return len(saved) == len(self.environments) and all(
            layers is not None and _has_state(env) and len(layers) == len(list(_layers(env)))
            for layers, env in zip(saved, self.environments, strict=True)
        )

    def check_environments(self, path: str, state: Mapping[str, Any]) -> None:
        """Raises if an environment refuses its state; afterwards all go on as they were.

        Each environment loads it for a try, and then its own state again. It was reset before.

        Raises:
            ValueError: what an environment, or a wrapper, has raised.
        """
        if not self.can_continue(state):
            return
        own = self.state_dict()
        try:
            for number, (env, layers) in enumerate(
                zip(self.environments, state["environments"], strict=True)
            ):
                _try_layers(env, layers, f"{path}/environments/{number}")
        finally:
            EnvironmentStates.load_state_dict(self, own)

    def load_generators(self, state: Mapping[str, Any]) -> None:
        """Restores the generators of the environments."""
        for env, generator in zip(self.environments, state["generators"], strict=False):
            random = _generator(env)
            if random is not None and generator is not None:
                random.bit_generator.state = generator

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the environments after a reset, if `can_continue`."""
        self.load_generators(state)
        for env, layers in zip(self.environments, state["environments"], strict=True):
            for layer, saved in zip(_layers(env), layers, strict=True):
                _load_layer(layer, saved)


def _load_layer(layer: Any, saved: Any) -> None:
    if isinstance(layer, TimeLimit):
        layer._elapsed_steps = saved
    elif saved is not None:
        layer.load_state_dict(copy.deepcopy(saved))


def _try_layers(env: Any, layers: Sequence[Any], path: str) -> None:
    for number, (layer, saved) in enumerate(zip(_layers(env), layers, strict=True)):
        try:
            _load_layer(layer, saved)
        except Exception as error:
            raise ValueError(
                f"load_state_dict: {path}/{number}: expected a state that {type(layer).__name__} loads, and it raised "
                f"{text_of(error)}; nothing was changed"
            ) from error


def _layers(env: Any) -> Iterator[Any]:
    """Yields an environment and those that it wraps, the outermost first."""
    yield env
    while env is not _unwrapped(env):
        env = env.env
        yield env


def _unwrapped(env: Any) -> Any:
    # EnvPool's environments lack the attribute.
    return getattr(env, "unwrapped", env)


def _has_state(env: Any) -> bool:
    return all(callable(getattr(_unwrapped(env), name, None)) for name in ("state_dict", "load_state_dict"))


def _state_of(env: Any) -> list[Any]:
    """Returns the state of each layer."""
    return [_layer_state(layer, layer is _unwrapped(env)) for layer in _layers(env)]


def _layer_state(layer: Any, is_unwrapped: bool) -> Any:
    if isinstance(layer, TimeLimit):
        return layer._elapsed_steps
    # A wrapper of an old gymnasium gives the attributes of what it wraps as its own.
    if is_unwrapped or hasattr(type(layer), "state_dict"):
        return copy.deepcopy(layer.state_dict())
    return None


def _generator(env: Any) -> np.random.Generator | None:
    unwrapped = _unwrapped(env)
    if not isinstance(unwrapped, gymnasium.Env | gymnasium.vector.VectorEnv):
        return None
    random: Any = unwrapped.np_random
    return random if isinstance(random, np.random.Generator) else None


def _generator_state(env: Any) -> Any:
    random = _generator(env)
    return None if random is None else copy.deepcopy(random.bit_generator.state)
