"""The models whose weights can be replaced: the policy, and parts of it by their dotted paths."""

# Rules: collectors CW1, CW6

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import optree
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.weights import has_weights, read_weights
from headrace.weights.layout import WeightLayout, host_array

POLICY = "policy"
"""The id of the whole policy."""


def find_model(policy: Any, model_id: str) -> Any:
    """Returns the policy itself for `POLICY`, else the part of it with this dotted path.

    Raises:
        ValueError: the policy has no such attribute.

    >>> find_model(1 + 2j, "real.imag")
    0.0
    """
    if model_id == POLICY:
        return policy
    try:
        return attrgetter(model_id)(policy)
    except AttributeError as error:
        raise ValueError(
            f"weight_sync_schemes: expected paths of attributes of the policy, got {model_id!r}: {error}"
        ) from error


class CheckedWeights(NamedTuple):
    """New weights of a model.

    Attributes:
        layout: of the model's weights.
        tree: the weights as they were given, on their devices.
        arrays: the same in the order of the layout, in host memory. They may be the caller's.
    """

    layout: WeightLayout
    tree: Any
    arrays: list[NDArray[Any]]

    def copy(self) -> Any:
        """Returns a tree of arrays of its own."""
        return self.layout.tree([array.copy() for array in self.arrays])


@dataclass(frozen=True)
class ModelWeights:
    """Names, shapes and dtypes of the weights of one model. Picklable.

    Attributes:
        model_id: `POLICY` or a dotted path.
        layout: of the weights; None: the model has none that can be replaced.
        kind: name of the model's type, for messages.
    """

    model_id: str
    layout: WeightLayout | None
    kind: str

    @classmethod
    def of(cls, policy: Any, model_id: str) -> ModelWeights:
        """Describes the present weights of a model.

        Raises:
            ValueError: the policy has no such part.
            SpecError: a weight is not an array.
        """
        model = find_model(policy, model_id)
        layout = WeightLayout(read_weights(model)) if has_weights(model) else None
        return cls(model_id, layout, type(model).__name__)

    def checked(self, weights: Any) -> CheckedWeights:
        """Returns new weights that fit.

        Raises:
            TypeError: the model has no weights.
            SpecError: names, shapes or dtypes differ, with the path.
        """
        if self.layout is None:
            raise TypeError(
                f"{self.model_id}: expected one with state_dict() and load_state_dict(), got {self.kind}; add them, or "
                "wrap a function with hr.FunctionalPolicy(apply, params)"
            )
        tree = _with_dots(weights, self.layout)
        try:
            arrays = self.layout.arrays(tree)
        except SpecError as error:
            if self.model_id == POLICY:
                raise
            raise SpecError(f"{self.model_id}: {error}") from None
        return CheckedWeights(self.layout, optree.tree_map(_known_array, tree), arrays)


def _known_array(leaf: Any) -> Any:
    """Returns an array of NumPy, torch or JAX as it is, and another array as one of NumPy."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if (torch is not None and isinstance(leaf, torch.Tensor)) or (
        jax is not None and isinstance(leaf, jax.Array)
    ):
        return leaf
    return host_array(leaf, "weights")[0]


def _with_dots(weights: Any, layout: WeightLayout) -> Any:
    """Returns the weights under the names of a torch module ("0.bias"), also where a nested dict was given."""
    if any(len(place.path) != 1 for place in layout.places):
        return weights
    paths, leaves, _ = optree.tree_flatten_with_path(weights)
    if all(len(path) == 1 for path in paths):
        return weights
    return {".".join(map(str, path)): leaf for path, leaf in zip(paths, leaves, strict=True)}


def models_of(policy: Any, model_ids: Iterable[str]) -> dict[str, ModelWeights]:
    """Describes the weights of these models of a policy; see `ModelWeights.of`."""
    return {model_id: ModelWeights.of(policy, model_id) for model_id in model_ids}


def shared_ids(models: Mapping[str, ModelWeights], apart: Collection[str]) -> list[str]:
    """Returns the ids of the models whose weights stand in one shared memory.

    Args:
        models: of a policy.
        apart: ids of those with a publishing end of their own.
    """
    return [
        model_id for model_id, model in models.items() if model.layout is not None and model_id not in apart
    ]


def joint_layout(models: Mapping[str, ModelWeights], model_ids: Iterable[str]) -> WeightLayout:
    """Returns the layout of the weights of several models: for each of them int64[1], its stamp, and its weights."""
    parts: list[Any] = []
    for model_id in model_ids:
        layout = models[model_id].layout
        assert layout is not None
        parts += [
            np.zeros(1, np.int64),
            layout.tree(np.zeros(place.shape, place.dtype) for place in layout.places),
        ]
    return WeightLayout(parts)


def check_model_id(model_id: object, known: Mapping[str, Any]) -> None:
    """Refuses an unknown id of a model.

    Raises:
        KeyError: with the known ones.
    """
    if model_id not in known:
        raise KeyError(
            f"unknown model {model_id!r}; expected one of {', '.join(known)}. More models are registered by "
            "weight_sync_schemes={'path.in.the.policy': None}"
        )


def read_only(tree: Any) -> Any:
    """Returns the tree, whose NumPy arrays can then not be written to."""
    for leaf in optree.tree_leaves(tree):
        if isinstance(leaf, np.ndarray):
            leaf.setflags(write=False)
    return tree
