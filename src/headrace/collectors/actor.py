"""From observations to actions: every form of policy behind one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature, check_array

Columns = Mapping[str, NDArray[Any]]
BASE_COLUMNS = frozenset(
    {
        "observation",
        "action",
        "reward",
        "terminated",
        "truncated",
        "next_observation",
        "episode_id",
        "t",
        "policy_version",
        "mask",
    }
)


class Actor:
    """Calls a policy on the observations of n copies and checks what it returns.

    Args:
        policy: a callable on the batched observation tree `[n, ...]`, which returns actions `[n, ...]` or the pair of
            actions and a dict of further columns; or a torch module, called under `no_grad` with tensors.
        observed: `Signature({"observation": ..., ...})`.
        acted: `Signature({"action": ...})`.
        num_envs: n.

    Attributes:
        extras: further columns that the policy gives; known after the first call.
    """

    # Rules: collectors CP1 to CP3

    def __init__(
        self, policy: Callable[..., Any], observed: Signature, acted: Signature, num_envs: int
    ) -> None:
        self._call = _torch_call(policy) if _is_torch_module(policy) else policy
        self._observed = observed
        self._acted = acted
        self._leading = (num_envs,)
        self._specs = acted.columns
        self._bare_observation = "observation" in observed.columns
        self._bare_action = list(acted.columns) == ["action"]
        self._tuple_action = isinstance(acted.tree["action"], tuple)
        self._names: tuple[str, ...] | None = None
        self.extras: dict[str, ArraySpec] = {}

    def __call__(self, row: Columns) -> tuple[Columns, Columns]:
        """Actions and further columns for the observations of one row.

        Raises:
            SpecError: what the policy returned does not fit, with the path.
        """
        if self._bare_observation:
            returned = self._call(row["observation"])
        else:
            returned = self._call(self._observed.unflatten(row)["observation"])
        extras: Any = {}
        if type(returned) is tuple and len(returned) == 2 and not self._tuple_action:
            returned, extras = returned
            if not isinstance(extras, Mapping):
                raise SpecError(
                    f"policy: expected the pair (actions, dict of columns), got {type(extras).__name__}"
                )
        return self._actions(returned), self._check_extras(extras)

    def _actions(self, returned: Any) -> Columns:
        try:
            if self._bare_action:
                return {"action": check_array(returned, self._specs["action"], "action", self._leading)}
            return self._acted.validate({"action": returned}, self._leading)
        except SpecError as error:
            raise SpecError(f"policy: {error}; {self._advice(returned)}") from error

    def _advice(self, returned: Any) -> str:
        """Describes the result that a policy must return, for the error about any other result."""
        (num_envs,) = self._leading
        advice = f"a policy returns actions [n, ...], one for each of the n = {num_envs} environments"
        is_discrete = self._bare_action and self._specs["action"] == ArraySpec((), np.int64)
        rows, *others = getattr(returned, "shape", None) or (0,)
        if is_discrete and rows == num_envs and len(others) == 1 and others[0] > 1:
            return f"{advice}; for values of all actions, as a Q-network gives them, return values.argmax(-1)"
        return advice

    def _check_extras(self, extras: Mapping[str, Any]) -> Columns:
        if self._names is None:
            self._learn(extras)
        if tuple(extras) != self._names and set(extras) != set(self._names or ()):
            raise SpecError(
                f"policy: expected the columns {self._names} of its first call, got {tuple(extras)}"
            )
        return {
            name: check_array(value, self.extras[name], name, self._leading) for name, value in extras.items()
        }

    def _learn(self, extras: Mapping[str, Any]) -> None:
        for name, value in extras.items():
            if name in self._observed.tree:
                raise SpecError(f"policy: the column {name!r} is an info column; give it another name")
            if name in BASE_COLUMNS:
                raise SpecError(f"policy: the column {name!r} is the collector's own; give it another name")
            array = np.asarray(value)
            if array.shape[:1] != self._leading:
                raise SpecError(
                    f"{name}: expected [{self._leading[0]}, ...] from the policy, got {array.shape}"
                )
            self.extras[name] = ArraySpec(array.shape[1:], array.dtype)
        self._names = tuple(extras)


def _is_torch_module(policy: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)


def _torch_call(module: Any) -> Callable[[Any], Any]:
    import optree
    import torch

    def call(observation: Any) -> Any:
        with torch.no_grad():
            out = module(optree.tree_map(torch.from_numpy, observation))
        return optree.tree_map(
            lambda leaf: leaf.numpy(force=True) if isinstance(leaf, torch.Tensor) else leaf, out
        )

    return call
