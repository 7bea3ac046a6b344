"""Single gymnasium environments, stepped one after the other.

Writing each observation straight into its row costs less than what `gymnasium.vector.SyncVectorEnv` does after each
step (stacking, copying, merging infos), so a collector over this is faster than that loop without any recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.ends import Autoreset
from headrace.envs.adapters.old_gym import reset_hint, reset_values, step_values
from headrace.envs.columns import AT_RESET, EnvironmentColumns
from headrace.envs.protocol import NO_ENVS, Columns, Indices, StepResult
from headrace.envs.states import EnvironmentStates
from headrace.envs.step_loop import StepLoop
from headrace.envs.tensors import TensorBoundary, boundary_of
from headrace.errors import SpecError
from headrace.kernels.row_copy import write_row
from headrace.spec import ArraySpec, check_array


class SingleEnvStepper(EnvironmentStates):
    """A `VectorStepper` over single environments.

    Args:
            envs: the environments, all with the same spaces.
            info_columns: entries of `info` to keep as columns.
            device: see `VectorEnvStepper`.

    Attributes:
        failed: the environment whose `step` raised last.
        on_info: is called with the environment and its `info` at each step, if it is set.
        result: of the last step; after an error, of the environments that were stepped before.

    Raises:
            ValueError: no environment, or the same environment twice.
            SpecError: the spaces differ; the message has the index of the first that differs.

        >>> import gymnasium
        >>> from headrace.envs.columns import new_columns
        >>> stepper = SingleEnvStepper([gymnasium.make("CartPole-v1") for _ in range(2)])
        >>> rows = new_columns(stepper.observation_signature, 2)
        >>> stepper.reset(rows, seeds=[1, 2])
        >>> step = stepper.step({"action": np.array([0, 1])}, rows)
        >>> step.reward, step.ended
        (array([1., 1.], dtype=float32), array([], dtype=int64))
        >>> stepper.close()
    """

    # Rules: collectors CE2, CE3, CE5

    autoreset = Autoreset.DISABLED
    resets_by_mask = True
    lanes_may_wait = False

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        info_columns: Mapping[str, ArraySpec] | None = None,
        device: str | None = None,
    ) -> None:
        _check_envs(envs)
        self.environments = tuple(envs)
        self.num_envs = len(envs)
        self._own_rows = range(self.num_envs)
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space
        self._columns = EnvironmentColumns(self.observation_space, self.action_space, info_columns)
        self.observation_signature = self._columns.observed
        self.action_signature = self._columns.acted
        # Bound methods: looking `step` up through the wrapper again costs more than the call of the loop itself.
        self._steps: list[Callable[[Any], Any]] = [env.step for env in envs]
        # Of environments that return torch tensors, by index.
        self._boundaries: dict[int, TensorBoundary] = {}
        self._device = device
        self.result = self._result = StepResult.empty(self.num_envs)
        self._loop = StepLoop(
            self._steps, self._result, "observation" if self._columns.observation_is_bare else None
        )
        self.failed = 0
        self.on_info: Callable[[int, Mapping[str, Any]], None] | None = None
        self._never_stepped = set(range(self.num_envs))
        self._never_reset = set(range(self.num_envs))
        self._calls = 0
        self._began_at = [0] * self.num_envs
        self._closed = False

    def reset(
        self,
        out: Columns,
        *,
        envs: Indices | None = None,
        seeds: Sequence[int] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Resets `envs` (None: all) one after the other; see `VectorStepper.reset`, and `step` for `rows`."""
        rows = self._own_rows if rows is None else rows
        for i in self._own_rows if envs is None else envs.tolist():
            try:
                returned = self.environments[i].reset(seed=None if seeds is None else int(seeds[i]))
            except Exception as error:
                error.add_note(f"raised by reset of environment {i}{reset_hint(error)}")
                raise
            if i in self._never_reset:
                self._check_reset(i, returned)
            observation, info = returned
            if i in self._boundaries:
                observation, info = self._boundaries[i].arrays((observation, self._read_info(info)))
            self._write_leaves(i, observation, out, rows[i])
            if self._columns.info:
                self._write_info(i, info, out, rows[i], AT_RESET)
            self._began_at[i] = self._calls

    def step(
        self,
        actions: Columns,
        out: Columns,
        active: Indices | None = None,
        rows: Sequence[int] | None = None,
    ) -> StepResult:
        """Steps the environments one after the other; see `VectorStepper.step`.

        Args:
            actions, active: as there.
            out: columns, of which environment i has row `rows[i]`.
            rows: one of each environment; None: row i.
        """
        # In one piece: frames drive the interpreter's data out of the caches, and each call then takes longer.
        result = self._result
        envs: Sequence[int] = self._own_rows
        if active is not None:
            result.reward.fill(0)
            envs = active.tolist()
        is_plain = active is None and self._columns.actions_are_rows
        try:
            ended = self._loop.run(
                envs,
                actions["action"] if is_plain else self._split(actions, active),
                out,
                rows,
                self._write_leaves,
                self._check_step if self._never_stepped else None,
                self._take_info if self._columns.info or self.on_info is not None else None,
            )
        except BaseException as error:
            self._note_failure(error)
            raise
        self._calls += 1
        result.ended = np.array(ended, np.intp) if ended else NO_ENVS
        result.last_observation = out
        return result

    def _note_failure(self, error: BaseException) -> None:
        """Adds to an error where it was raised, and keeps what was stepped before."""
        loop = self._loop
        self.failed = i = loop.env
        step = self._calls - self._began_at[i]
        error.add_note(
            f"raised by environment {i} at step {step} of its episode, action {shown(loop.action)}"
        )
        self._result.ended = np.array(loop.ended, np.intp)

    def _write_leaves(self, i: int, observation: Any, out: Columns, row: int) -> None:
        for name, keys in self._columns.leaf_keys:
            leaf = observation
            for key in keys:
                leaf = leaf[key]
            if write_row(out[name], row, leaf, self.num_envs):
                continue
            # NumPy would broadcast an array of fewer numbers. Plain numbers have no size; lists are rare.
            if getattr(leaf, "size", 1) != self._columns.sizes[name]:
                leaf = self._checked_leaf(i, name, leaf)
            out[name][row] = leaf

    def get_attr(self, name: str) -> Any:
        """Returns the attribute of the first environment, through its wrappers."""
        return self.environments[0].get_wrapper_attr(name)

    def close(self) -> None:
        """Closes all environments, even if one of them raises; the first error is raised at the end."""
        if self._closed:
            return
        self._closed = True
        close_all(self.environments)

    def _split(self, actions: Columns, active: Indices | None) -> Sequence[Any] | NDArray[Any]:
        """Returns one action, an element of the action space, for each environment that takes part."""
        if active is not None:
            actions = {name: column[active] for name, column in actions.items()}
        return self._columns.action_elements(actions)

    def _checked_leaf(self, i: int, name: str, leaf: Any) -> NDArray[Any]:
        """Checks a leaf of an observation that is not an array of the space's size: nested lists are allowed."""
        return check_array(leaf, self._columns.observed.columns[name], f"environment {i}: {name}")

    def _write_info(self, i: int, info: Mapping[str, Any], out: Columns, row: int, step: int) -> None:
        for name, spec in self._columns.info.items():
            if name not in info:
                raise SpecError(f"environment {i}: {self._columns.missing_info(name, info, step)}")
            value = info[name]
            # Infos are small and may be missing at some steps, so each one is checked.
            out[name][row] = check_array(value, spec, f"environment {i}: {name}")

    def _take_info(self, i: int, info: Mapping[str, Any], out: Columns, row: int) -> None:
        """Takes the info of a step of environment i."""
        if self._columns.info:
            self._write_info(i, info, out, row, self._calls - self._began_at[i])
        if self.on_info is not None:
            self.on_info(i, info)

    def _check_reset(self, i: int, returned: Any) -> None:
        try:
            observation, info = reset_values(returned)
            boundary = boundary_of(observation, self._device)
            if boundary is not None:
                self._boundaries[i] = boundary
                self._steps[i] = partial(self._step_tensors, self._steps[i], boundary)
                observation = boundary.arrays(observation)
            self._check_observed(observation, info)
        except SpecError as error:
            raise SpecError(f"environment {i}: {error}") from error
        self._never_reset.discard(i)

    def _step_tensors(self, step: Callable[[Any], Any], boundary: TensorBoundary, action: Any) -> Any:
        """Steps an environment of tensors; returns arrays."""
        observation, reward, terminated, truncated, info = step_values(step(boundary.actions(action)))
        return boundary.arrays((observation, reward, terminated, truncated, self._read_info(info)))

    def _read_info(self, info: Any) -> Any:
        """Returns the entries of an info that are read; anything but a dict as it is, to be refused."""
        if self.on_info is not None or not isinstance(info, Mapping):
            return info
        return {name: info[name] for name in self._columns.info if name in info}

    def _check_observed(self, observation: Any, info: Any) -> None:
        self._columns.check_observation(observation)
        if not isinstance(info, Mapping):
            raise SpecError(f"info: expected a dict, got {type(info).__name__}")

    def _check_step(self, i: int, returned: Any) -> None:
        if i not in self._never_stepped:
            return
        try:
            observation, reward, terminated, truncated, info = step_values(returned)
            self._check_observed(observation, info)
            self._columns.check_outcome(reward, terminated, truncated)
        except SpecError as error:
            raise SpecError(f"environment {i}: {error}") from error
        self._never_stepped.discard(i)


def close_all(environments: Iterable[Any]) -> None:
    """Closes each environment, even if one of them raises; the first error is raised at the end."""
    failed: Exception | None = None
    for i, env in enumerate(environments):
        try:
            env.close()
        except Exception as error:
            error.add_note(f"raised by close of environment {i}")
            failed = failed or error
    if failed is not None:
        raise failed


def check_distinct(envs: Sequence[Any]) -> None:
    """Raises ValueError if there is no environment, or the same one twice."""
    if not envs:
        raise ValueError("envs: expected at least one environment, got none")
    if len({id(env) for env in envs}) != len(envs):
        raise ValueError("expected a new environment at each call of create_env_fn, got the same one twice")


def _check_envs(envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
    check_distinct(envs)
    for i, env in enumerate(envs):
        for name in ("observation_space", "action_space"):
            expected, got = getattr(envs[0], name), getattr(env, name)
            if expected != got:
                raise SpecError(
                    f"environment {i}: {name}: expected {expected}, as environment 0 has, got {got}"
                )
