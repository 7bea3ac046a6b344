"""The interfaces of n environments that a collecting loop steps: all at once, or those that are ready.

`VectorStepper` steps all environments together; `AsyncStepper` gives the results of some while the others still step.

Observations are written into the caller's arrays, columns `[n, ...]` such as the next row of a store, so they are
copied only once. The loop around a stepper is:

    stepper.reset(row, seeds=seeds)
    while collecting:
        next_row = ...                                   # other arrays than row: row is still to be kept
        step = stepper.step(actions(row), next_row)
        if step.ended.size and stepper.autoreset is not Autoreset.NEXT_STEP:
            keep(step.last_observation, step.ended)      # the final row of the episodes that ended
            if stepper.autoreset is Autoreset.DISABLED:
                stepper.reset(next_row, envs=step.ended)  # With agents that end before others: step.over.
        row = next_row

Environments that Headrace builds itself are `Autoreset.DISABLED`. Resetting is a separate call, so the same lines
handle a limit on the length of a trajectory: mark the rows truncated, keep `next_row`, call `reset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.spec import Signature

if TYPE_CHECKING:
    import torch

Columns = Mapping[str, NDArray[Any]]
Indices = NDArray[np.intp]

NO_ENVS: Indices = np.empty(0, np.intp)
NO_ENVS.setflags(write=False)


@dataclass(slots=True, eq=False)
class StepResult:
    """The outcome of one step of n environments. The next step overwrites the arrays: copy values that must last.

    Attributes:
        reward: float32[n]; 0 for environments that took no transition.
        terminated, truncated: bool[n]; false for environments that took no transition.
        ended: indices of the environments whose episode ended in this step, ascending.
        last_observation: columns `[n, ...]`; only the rows in `ended` are valid: the true last
            observation. These are the caller's own output arrays, except under SAME_STEP, where those already hold
            the first observation of the next episode.
        reset_steps: indices of the environments for which this step was the reset (NEXT_STEP): the action was
            ignored, so the row that was given to the policy is the final row of the old episode (its observation, zeros
            elsewhere) and the output is the first observation of the next episode.
        waiting: indices of the lanes that took no part in this step, ascending: agents that have ended before the
            others of their environment, or have not come yet. Their output is not data until they take part.
        over: indices of the lanes that the caller is to reset in place of `ended`, ascending, where lanes may wait: all
            lanes of each environment whose episode is over, also those that ended before.
    """

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    ended: Indices
    last_observation: Columns
    reset_steps: Indices
    waiting: Indices = field(default_factory=lambda: NO_ENVS)
    over: Indices = field(default_factory=lambda: NO_ENVS)

    @classmethod
    def empty(cls, num_envs: int) -> StepResult:
        """Returns a result without transitions."""
        flags = np.zeros((2, num_envs), np.bool_)
        return cls(np.zeros(num_envs, np.float32), flags[0], flags[1], NO_ENVS, {}, NO_ENVS)


class Environments(Protocol):
    """n environments and the spaces of one of them.

    Attributes:
        num_envs: n.
        observation_space, action_space: the gymnasium spaces of one environment.
        observation_signature: `Signature({"observation": ..., **info_columns})` of one environment. Its columns
            ("observation" or "observation/camera") are the arrays that `reset` and `step` write. An info column stands
            beside the observation that it came with.
        action_signature: `Signature({"action": ...})` of one environment: the columns that `step` reads.
        autoreset: the mode; with DISABLED the caller must call `reset` for the environments that ended, or for
            `StepResult.over` where lanes may wait.
        resets_by_mask: whether `reset` takes only some of the environments, as a limit on trajectories needs.
        lanes_may_wait: whether a step may leave lanes out (`StepResult.waiting`).
        environments: the environments that are stepped: n single ones, or one vector environment.
    """

    num_envs: int
    observation_space: Any
    action_space: Any
    observation_signature: Signature
    action_signature: Signature
    autoreset: Autoreset
    resets_by_mask: bool
    lanes_may_wait: bool
    environments: tuple[Any, ...]

    def get_attr(self, name: str) -> Any:
        """Returns the attribute of the first environment, searched through its wrappers.

        Raises:
            AttributeError: there is no such attribute.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the environments as far as they have any, and of their generators."""
        ...

    def own_state(self) -> dict[str, Any]:
        """Returns the parts of the state that are not those of the environments."""
        ...

    def can_continue(self, state: Mapping[str, Any]) -> bool:
        """Returns whether `load_state_dict` restores all environments from this state."""
        ...

    def check_environments(self, path: str, state: Mapping[str, Any]) -> None:
        """Raises ValueError if an environment refuses its state; afterwards all go on as they were."""
        ...

    def load_generators(self, state: Mapping[str, Any]) -> None:
        """Restores the generators of the environments alone; `reset` of all follows."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores all environments, which were reset before, if `can_continue`."""
        ...

    def on_device(self, device: torch.device) -> Mapping[str, torch.Tensor] | None:
        """Returns the newest observations as the environments gave them, for a policy on the same device.

        Returns:
            Columns `[n, ...]` of the observation, valid until the next call of `step` or `reset`; None if the
            environments gave no tensors on this device.
        """
        ...

    def close(self) -> None:
        """Closes the environments. More calls do nothing."""
        ...


@runtime_checkable
class VectorStepper(Environments, Protocol):
    """n environments, stepped as one."""

    def reset(self, out: Columns, *, envs: Indices | None = None, seeds: Sequence[int] | None = None) -> None:
        """Begins a new episode in `envs` (None: in all) and writes their first observations into their rows of `out`.

        Args:
            out: columns `[n, ...]` of `observation_signature`; rows of others are left alone.
            envs: indices.
            seeds: n seeds; only those of `envs` are used. None: each environment's own generator goes on.
        """
        ...

    def step(self, actions: Columns, out: Columns, active: Indices | None = None) -> StepResult:
        """Takes one transition in each environment and writes the observations that followed into `out`.

        Args:
            actions: columns `[n, ...]` of `action_signature`, of its dtypes. An environment may keep or change what it
                is given: give the policy's arrays, not stored rows.
            out: columns `[n, ...]` of `observation_signature`.
            active: indices of the environments that take part, ascending. None: all. The others take no transition
                and their rows of `out` are left alone.

        Raises:
            SpecError: on the first step, what does not fit the spaces.
            ValueError: `active` with an environment that resets itself.
        """
        ...


class Results(NamedTuple):
    """Results of environments that are stepped asynchronously; the arrays are the caller's own.

    Attributes:
        envs: int64[k], whose results these are, in the order in which they came.
        observations: columns `[k, ...]` of `observation_signature`.
        reward: float32[k].
        terminated, truncated: bool[k].
    """

    envs: Indices
    observations: Columns
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


@runtime_checkable
class AsyncStepper(Environments, Protocol):
    """n environments, of which those that are ready are given actions while the others still step.

    An environment is sent an action or a reset only when its last result was received. After the end of an episode the
    next step is the reset (NEXT_STEP): its action is ignored.

    Attributes:
        batch_size: k, the number of results of one call of `exchange`.
        is_busy: bool[n], environments whose result was not received yet; right after an exception, too.
    """

    batch_size: int
    is_busy: NDArray[np.bool_]

    def send_reset(self, envs: Indices, seeds: Sequence[int] | None = None) -> None:
        """Begins a new episode in these environments; their first observations are results.

        Args:
            envs: indices.
            seeds: n seeds; only those of `envs` are used.
        """
        ...

    def exchange(self, envs: Indices, actions: Columns) -> Results:
        """Begins a step of these environments, and waits for the results of k environments.

        At least k must have been sent an action or a reset then.

        Args:
            envs: int64[m], indices, each once.
            actions: columns `[m, ...]` of `action_signature`; not used if there are no `envs`.

        Raises:
            SpecError: on the first calls, what does not fit the spaces.
        """
        ...
