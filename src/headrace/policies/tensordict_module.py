"""Torch modules on TensorDicts as policies."""

# Rules: collectors CP2

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from headrace.errors import SpecError
from headrace.policies.result import PolicyResult, Read
from headrace.spec import Signature

_NAMES = ("tensordict", "td")
_CLASSES = ("TensorDict", "TensorDictBase")


def takes_tensordict(module: torch.nn.Module) -> bool:
    """Whether a module is called with a TensorDict.

    Its class is one of tensordict's, or the only required parameter of its `forward` is named `tensordict` or `td` or
    is annotated as a TensorDict.

    >>> class Net(torch.nn.Module):
    ...     def forward(self, td): ...
    >>> takes_tensordict(Net()), takes_tensordict(torch.nn.Identity())
    (True, False)
    """
    if _is_tensordict_module(module):
        return True
    parameters = list(inspect.signature(module.forward).parameters.values())
    if not parameters or any(parameter.default is inspect.Parameter.empty for parameter in parameters[1:]):
        return False
    return parameters[0].name in _NAMES or _is_tensordict_class(parameters[0].annotation)


def _is_tensordict_module(module: torch.nn.Module) -> bool:
    library = sys.modules.get("tensordict.nn")
    # A compiled module has the one that it was made of.
    given = getattr(module, "_orig_mod", module)
    return library is not None and isinstance(given, library.TensorDictModuleBase)


def _is_tensordict_class(annotation: Any) -> bool:
    if isinstance(annotation, str):  # `from __future__ import annotations`
        return annotation.rpartition(".")[2] in _CLASSES
    return isinstance(annotation, type) and any(cls.__name__ in _CLASSES for cls in annotation.__mro__)


class TensorDictPolicy:
    """Calls a module with a TensorDict of the observations, and reads the action and further columns from the result.

    Args:
        module: see `takes_tensordict`.
        acted: `Signature({"action": ...})`.
        read: reads what the module returns, if that is not a TensorDict.

    Raises:
        ImportError: tensordict is not installed.
    """

    def __init__(self, module: torch.nn.Module, acted: Signature, read: Read) -> None:
        try:
            import tensordict
        except ImportError as error:
            raise ImportError(
                f"policy: {type(module).__name__}.forward takes a TensorDict: pip install tensordict"
            ) from error
        self._module = module
        self._acted, self._read = acted, read
        self._paths = {name: tuple(name.split("/")) for name in acted.columns}
        self._out_keys = _declared(module) if _is_tensordict_module(module) else None
        self._make, self._base = tensordict.TensorDict, tensordict.TensorDictBase

    def __call__(self, observation: Any) -> PolicyResult:
        """Returns the actions, and as extras the other keys that the module writes.

        Args:
            observation: a tree of tensors `[n, ...]`. It is the key "observation"; leaves of a Dict space are keys such
                as `("observation", "camera")`, and of a Tuple space `("observation", "0")`.

        Raises:
            SpecError: the module does not write the action.
        """
        given = {"observation": _as_dict(observation)}
        rows = next(_leaves(given)).shape[0]
        tensordict = self._make(given, batch_size=[rows])
        before = set(tensordict.keys(True, True))
        returned = self._module(tensordict)
        if returned is None:
            returned = tensordict
        if not isinstance(returned, self._base):
            return self._read(returned, self._acted)
        keys = self._out_keys
        if keys is None:
            keys = [key for key in returned.keys(True, True) if key not in before]
        return PolicyResult(self._actions(returned), (), self._extras(returned, keys))

    def _actions(self, returned: Any) -> Any:
        try:
            columns = {name: returned[path] for name, path in self._paths.items()}
        except KeyError as error:
            raise SpecError(
                f"action: expected the keys {', '.join(self._paths)} in the TensorDict that the module returns, got "
                f"{', '.join(_name_of(key) for key in returned.keys(True, True))}"
            ) from error
        return self._acted.unflatten(columns)["action"]

    def _extras(self, returned: Any, keys: list[Any]) -> dict[str, Any]:
        return {_name_of(key): returned[key] for key in keys if not _is_action(key)}


def _declared(module: Any) -> list[Any]:
    # tensordict takes "_" for a key that is dropped.
    return [key for key in getattr(module, "_orig_mod", module).out_keys if key != "_"]


def _is_action(key: Any) -> bool:
    return (key if isinstance(key, str) else key[0]) == "action"


def _name_of(key: Any) -> str:
    """Returns the name of the column for a key: the parts of a nested key are joined by dots."""
    return key if isinstance(key, str) else ".".join(key)


def _as_dict(tree: Any) -> Any:
    """Returns a tree with dicts for its containers, as a TensorDict takes them."""
    if isinstance(tree, Mapping):
        return {name: _as_dict(child) for name, child in tree.items()}
    if isinstance(tree, tuple | list):
        return {str(i): _as_dict(child) for i, child in enumerate(tree)}
    return tree


def _leaves(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, Mapping):
        for child in tree.values():
            yield from _leaves(child)
    else:
        yield tree
