"""Environments of torch tensors, for an examination that looks at arrays."""

from __future__ import annotations

from typing import Any

from headrace.cli.doctor.report import Report
from headrace.envs.tensors import TensorBoundary, boundary_of


class ShownAsArrays:
    """An environment whose tensors are shown as arrays; one of arrays stays as it is.

    Args:
        env: the environment.
        report: gets the note that it has tensors.
        device: the device of its actions; None: its own.
    """

    def __init__(self, env: Any, report: Report, device: str | None) -> None:
        self._env, self._report, self._device = env, report, device
        self._boundary: TensorBoundary | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, **kwargs: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        returned = self._env.reset(**kwargs)
        if self._boundary is None:
            # The first item of a tuple is the observation; an old interface returns nothing else.
            observation = returned[0] if isinstance(returned, tuple) and returned else returned
            self._boundary = boundary_of(observation, self._device)
            self._note()
        return self._shown(returned)

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        boundary = self._boundary
        return self._shown(self._env.step(action if boundary is None else boundary.actions(action)))

    def _shown(self, returned: Any) -> Any:
        return returned if self._boundary is None else self._boundary.arrays(returned)

    def _note(self) -> None:
        boundary = self._boundary
        if boundary is None:
            return
        actions = f"tensors on {boundary.device}"
        if not boundary.gives_tensors:
            actions = f'NumPy arrays (env_device="{boundary.device}" gives tensors)'
        self._report.ok("tensors", f"values are torch tensors on {boundary.device}; actions are {actions}")
