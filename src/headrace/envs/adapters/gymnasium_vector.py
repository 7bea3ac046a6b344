"""A gymnasium vector environment that the user made, in each of the three modes of autoreset."""

# Rules: collectors CE4

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from headrace.checks import shown
from headrace.ends import Autoreset
from headrace.envs.adapters.old_gym import reset_values, step_values
from headrace.envs.adapters.vector_info import VectorInfo
from headrace.envs.autoreset import mode_of
from headrace.envs.columns import AT_RESET, EnvironmentColumns, new_columns
from headrace.envs.protocol import NO_ENVS, Columns, Indices, StepResult
from headrace.envs.states import EnvironmentStates
from headrace.envs.tensors import NewestTensors, TensorBoundary, boundary_of
from headrace.errors import SpecError
from headrace.spec import ArraySpec

if TYPE_CHECKING:
    import torch


class VectorEnvStepper(EnvironmentStates):
    """A `VectorStepper` over one vector environment.

    Args:
        env: the environment.
        autoreset: its mode of reset at the end of an episode; None takes the mode that it declares in
            `metadata["autoreset_mode"]`.
        info_columns: entries of `info` to keep as columns.
        device: name of the torch device that was asked for. An environment that returns tensors is then given tensors
            as actions. None: it is given tensors if its own are not on the CPU.

    Raises:
        ValueError: a mode that is not declared, or that contradicts the declared one.

    >>> from gymnasium.vector import AutoresetMode
    >>> from headrace.testing.envs import CounterEnv
    >>> env = SyncVectorEnv([lambda: CounterEnv(2)], autoreset_mode=AutoresetMode.SAME_STEP)
    >>> stepper = VectorEnvStepper(env)
    >>> rows = new_columns(stepper.observation_signature, 1)
    >>> stepper.reset(rows)
    >>> for _ in range(2):
    ...     step = stepper.step({"action": np.array([0])}, rows)
    >>> step.ended, step.last_observation["observation"], rows["observation"]
    (array([0]), array([[0, 0, 2]]), array([[0, 1, 0]]))
    >>> stepper.close()
    """

    lanes_may_wait = False

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        autoreset: Autoreset | None = None,
        info_columns: Mapping[str, ArraySpec] | None = None,
        device: str | None = None,
    ) -> None:
        self.autoreset = mode_of(env, autoreset)
        # gymnasium asks for the mask only of environments that do not reset themselves; its own take it always.
        self.resets_by_mask = self.autoreset is Autoreset.DISABLED or isinstance(
            env.unwrapped, SyncVectorEnv | AsyncVectorEnv
        )
        self.environments = (env,)
        self.num_envs: int = env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._env = env
        self._columns = EnvironmentColumns(self.observation_space, self.action_space, info_columns)
        self.observation_signature = self._columns.observed
        self.action_signature = self._columns.acted
        self._info = VectorInfo(self._columns, self.num_envs)
        self._shapes = {
            name: (self.num_envs, *spec.shape) for name, spec in self._columns.observed.columns.items()
        }
        self._is_plain = self._columns.observation_is_bare and not self._columns.info
        self._outcome_shape = (self.num_envs,)
        self._result = StepResult.empty(self.num_envs)
        self._flags = np.zeros(self.num_envs, np.bool_)
        self._is_same_step = self.autoreset is Autoreset.SAME_STEP
        self._final = new_columns(self._columns.observed, self.num_envs * self._is_same_step)
        # Environments whose episode ended and that were not reset since (SAME_STEP: none), ascending.
        self._ended: Indices = NO_ENVS
        self._device = device
        # Of an environment that returns torch tensors; None: it does not, or was never reset.
        self._boundary: TensorBoundary | None = None
        self._newest: NewestTensors | None = None
        self._was_reset = False
        self._calls = 0
        self._closed = False

    def reset(self, out: Columns, *, envs: Indices | None = None, seeds: Sequence[int] | None = None) -> None:
        """Resets all environments at once, or `envs` by mask; see `VectorStepper.reset`.

        Raises:
            ValueError: `envs`, with an environment that resets itself and is not known to take a mask.
        """
        if envs is None or envs.size:
            observation, info = self._reset_env(envs, seeds)
            if self._boundary is not None:
                observation, _, info = self._fetched(self._boundary, observation, None, info, envs)
            self._write(observation, info, out, envs, AT_RESET)

    def step(self, actions: Columns, out: Columns, active: Indices | None = None) -> StepResult:
        """Steps the environment once; see `VectorStepper.step`.

        A vector environment can only step all its environments. Inactive ones are stepped too, and reset at their ends;
        their results are dropped.

        Raises:
            RuntimeError: an environment that ended takes part without a reset (DISABLED).
            SpecError: SAME_STEP, an environment ended and `info["final_obs"]` has no observation for it.
        """
        reset_steps = self._before_step(active)
        try:
            returned = self._call_step(actions)
            if self._calls == 0:
                step_values(returned)
            observation, reward, terminated, truncated, info = returned
            if self._boundary is not None:
                observation, (reward, terminated, truncated), info = self._fetched(
                    self._boundary, observation, (reward, terminated, truncated), info, active
                )
        except Exception as error:
            error.add_note(
                f"raised by the vector environment at its step {self._calls}, actions {shown(actions)}"
            )
            raise
        if self._calls == 0 or not self._are_outcomes(reward, terminated, truncated):
            self._check_outcome(reward, terminated, truncated)
        self._calls += 1
        self._write(observation, info, out, active, self._calls - 1)
        result = self._result
        # Rewards are often float64; the kinds of the arrays were checked on the first step.
        result.reward[...] = reward
        result.terminated[...] = terminated
        result.truncated[...] = truncated
        self._clear(reset_steps)
        self._report_ends(info, out, active)
        result.reset_steps = reset_steps
        return result

    def get_attr(self, name: str) -> Any:
        """The attribute of the first single environment where the vector environment gives it, else its own."""
        if isinstance(self._env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return self._env.unwrapped.get_attr(name)[0]
        return getattr(self._env, name)

    def own_state(self) -> dict[str, Any]:
        """Returns which environments have ended."""
        return {"ended": self._ended.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the environment; see `VectorStepper`."""
        super().load_state_dict(state)
        self._ended = np.array(state["ended"], np.intp)
        if self._newest is not None:
            self._newest.forget()

    def on_device(self, device: torch.device) -> Mapping[str, torch.Tensor] | None:
        """Returns the newest observations as tensors of this device; see `VectorStepper`."""
        return None if self._newest is None else self._newest.on(device)

    def close(self) -> None:
        """Closes the environment. More calls do nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def _call_step(self, actions: Columns) -> Any:
        """Returns what the environment's own step returns."""
        tree = self._columns.action_tree(actions)
        return self._env.step(tree if self._boundary is None else self._boundary.actions(tree))

    def _before_step(self, active: Indices | None) -> Indices:
        """Handles the environments that ended before this step. Returns those for which this step is the reset."""
        if active is not None and self.autoreset is not Autoreset.DISABLED:
            raise ValueError(
                "active: expected None for an environment that resets itself; it steps all of them"
            )
        ended = self._ended
        if not ended.size:
            return NO_ENVS
        if self.autoreset is Autoreset.NEXT_STEP:
            return ended
        stepped = ended if active is None else np.intersect1d(ended, active)
        if stepped.size:
            raise RuntimeError(
                f"environments {stepped.tolist()} ended: expected a reset before the next step"
            )
        self._reset_env(ended, None)
        return NO_ENVS

    def _reset_env(self, envs: Indices | None, seeds: Sequence[int] | None) -> tuple[Any, Mapping[str, Any]]:
        if envs is not None and envs.size == self.num_envs:
            envs = None
        if envs is not None and not self.resets_by_mask:
            raise ValueError(
                "envs: expected None: this environment resets itself and is not known to reset by mask; "
                "build it with autoreset_mode DISABLED"
            )
        try:
            observation, info = reset_values(self._call_reset(envs, seeds))
        except Exception as error:
            error.add_note("raised by reset of the vector environment")
            raise
        if not self._was_reset:
            self._was_reset = True
            self._boundary = boundary_of(observation, self._device)
            self._newest = None if self._boundary is None else NewestTensors(self._columns, self.num_envs)
        self._ended = NO_ENVS if envs is None else np.setdiff1d(self._ended, envs)
        return observation, info

    def _fetched(
        self,
        boundary: TensorBoundary,
        observation: Any,
        outcome: Any,
        info: Mapping[str, Any],
        envs: Indices | None,
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Returns these values with arrays for the tensors. Only the observations of `envs` (None: all) are new."""
        if self._newest is not None:
            self._newest.see(observation, envs)
        read = {name: info[name] for name in self._info.names & info.keys()}
        observation, outcome, read = boundary.arrays((observation, outcome, read))
        return observation, outcome, {**info, **read}

    def _call_reset(self, envs: Indices | None, seeds: Sequence[int] | None) -> Any:
        """Returns what the environment's own reset of `envs` (None: all) returns, with a row for each environment."""
        if envs is None:
            return self._env.reset(seed=_seed_argument(seeds))
        mask = np.zeros(self.num_envs, np.bool_)
        mask[envs] = True
        return self._env.reset(seed=_seed_argument(seeds), options={"reset_mask": mask})

    def _write(
        self, observation: Any, info: Mapping[str, Any], out: Columns, envs: Indices | None, step: int
    ) -> None:
        if self._calls <= 1:
            try:
                self._columns.check_observation(observation, (self.num_envs,))
            except SpecError as error:
                raise SpecError(f"environments 0 to {self.num_envs - 1}: {error}") from error
        if (
            self._is_plain
            and envs is None
            and getattr(observation, "shape", None) == self._shapes["observation"]
        ):
            out["observation"][...] = observation
            return
        arrays = self._columns.observation.flatten({"observation": observation})
        for name in self._columns.info:
            arrays[name] = self._info.column(name, info, envs, step)
        for name, array in arrays.items():
            if array.shape != self._shapes[name]:  # NumPy would broadcast it.
                raise SpecError(
                    f"environments 0 to {self.num_envs - 1}: {name}: expected shape {self._shapes[name]}, got "
                    f"{array.shape}; nothing is broadcast"
                )
            if envs is None:
                out[name][...] = array
            else:
                out[name][envs] = array[envs]

    def _report_ends(self, info: Mapping[str, Any], out: Columns, active: Indices | None) -> None:
        result = self._result
        result.last_observation = out
        result.ended = self._flagged()
        if not self._is_same_step:
            self._ended = result.ended
        if active is not None:
            self._clear(np.setdiff1d(np.arange(self.num_envs), active))
            result.ended = self._flagged()
        if self._is_same_step and result.ended.size:
            self._info.read_final(info, result.ended, self._final, self._calls - 1)
            result.last_observation = self._final

    def _flagged(self) -> Indices:
        """Returns the environments with a flag in the result."""
        np.logical_or(self._result.terminated, self._result.truncated, out=self._flags)
        return self._flags.nonzero()[0]

    def _are_outcomes(self, reward: Any, terminated: Any, truncated: Any) -> bool:
        try:
            return bool(reward.shape == terminated.shape == truncated.shape == self._outcome_shape)
        except AttributeError:
            return False

    def _clear(self, envs: Indices) -> None:
        if envs.size:
            self._result.reward[envs] = 0
            self._result.terminated[envs] = False
            self._result.truncated[envs] = False

    def _check_outcome(self, reward: Any, terminated: Any, truncated: Any) -> None:
        try:
            self._columns.check_outcome(reward, terminated, truncated, (self.num_envs,))
        except SpecError as error:
            raise SpecError(f"environments 0 to {self.num_envs - 1}: {error}") from error


def _seed_argument(seeds: Sequence[int] | None) -> Any:
    if seeds is None:
        return None
    seeds = [int(seed) for seed in seeds]
    # One number means seed, seed + 1, ... to each vector environment; a list is not understood by all of them.
    if seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return seeds[0]
    return seeds
