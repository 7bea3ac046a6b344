"""The arguments of `update_policy_weights_`: which weights go to which workers."""

# Rules: collectors CW1, CW2

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from headrace.checks import check_mapping
from headrace.collectors.updates.models import POLICY, check_model_id, find_model
from headrace.weights import has_weights, read_weights

_CALLER = "update_policy_weights_"


@dataclass(frozen=True)
class Publication:
    """Weights that are published together, under one number.

    Attributes:
        weights: a tree of arrays for each model, by its id.
        workers: indices of the workers that get them; None: all.
    """

    weights: Mapping[str, Any]
    workers: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of one call of `update_policy_weights_`; see there."""

    policy_or_weights: Any = None
    weights: Any = None
    policy: Any = None
    worker_ids: Any = None
    model_id: str = POLICY
    weights_dict: Mapping[str, Any] | None = None

    def sources(self) -> list[Any]:
        """Returns the given sources of weights: at most one.

        Raises:
            ValueError: several; or `weights_dict` together with `model_id`.
        """
        sources = (self.policy_or_weights, self.weights, self.policy, self.weights_dict)
        given = [source for source in sources if source is not None]
        if len(given) > 1:
            raise ValueError(
                f"{_CALLER}: expected one of policy_or_weights, weights, policy, weights_dict, got several"
            )
        if self.weights_dict is not None and self.model_id != POLICY:
            raise ValueError(f"{_CALLER}: expected weights_dict without model_id, got {self.model_id!r}")
        return given

    def publications(
        self, known: Mapping[str, Any], devices: Sequence[Any], policy: Any
    ) -> list[Publication]:
        """Returns what is to be published.

        Args:
            known: the models by their ids.
            devices: the `policy_device` of each worker.
            policy: the object of this process, for a call without sources; None: there is none.

        Raises:
            ValueError: more than one source; a worker that does not exist.
            KeyError: an unknown model; the message lists the known ones.
            TypeError: an object without `state_dict`.
        """
        self.sources()
        check_model_id(self.model_id, known)
        workers = None if self.worker_ids is None else chosen_workers(self.worker_ids, devices)
        if self.weights_dict is not None:
            check_mapping("weights_dict", self.weights_dict, "weights by model")
            for model_id in self.weights_dict:
                check_model_id(model_id, known)
            trees = {model_id: weights_of(weights) for model_id, weights in self.weights_dict.items()}
            return [Publication(trees, workers)] if trees else []
        source = self.policy_or_weights
        if isinstance(source, dict) and source and all(isinstance(key, int) for key in source):
            return self._by_worker(source, len(devices))
        return [Publication({self.model_id: self._tree(policy)}, workers)]

    def _by_worker(self, by_worker: Mapping[int, Any], count: int) -> list[Publication]:
        if self.worker_ids is not None:
            raise ValueError(f"{_CALLER}: expected weights by worker without worker_ids, got both")
        _check_workers(list(by_worker), count)
        return [
            Publication({self.model_id: weights_of(weights)}, [worker])
            for worker, weights in sorted(by_worker.items())
        ]

    def _tree(self, policy: Any) -> Any:
        if self.policy is not None:
            return read_weights(self.policy)
        if self.weights is not None:
            return weights_of(self.weights)
        if self.policy_or_weights is not None:
            return weights_of(self.policy_or_weights)
        return read_weights(own_model(policy, self.model_id))


def own_model(policy: Any, model_id: str) -> Any:
    """Returns a model of the policy that the collector was made with, for a call without sources.

    Raises:
        ValueError: it was made without a policy object.
    """
    if policy is None:
        raise ValueError(
            f"{_CALLER}: the collector was not built with a policy object; give weights or a policy"
        )
    return find_model(policy, model_id)


def weights_of(source: Any) -> Any:
    """Returns a tree of arrays: the source itself, or the weights of an object with `state_dict()`.

    Raises:
        TypeError: neither of them.
    """
    tensordict = sys.modules.get("tensordict")
    if tensordict is not None and isinstance(source, tensordict.TensorDictBase):
        # A tensordict of a module is nested, its state dict has dotted names; the layout of the model takes either.
        return source.to_dict()
    is_tree = (
        isinstance(source, np.ndarray) or not optree.tree_is_leaf(source) or hasattr(source, "__array__")
    )
    return source if is_tree and not has_weights(source) else read_weights(source)


def chosen_workers(worker_ids: Any, devices: Sequence[Any]) -> list[int]:
    """Returns the workers of the argument `worker_ids`: an int, a device, or a list of these.

    Args:
        worker_ids: the argument.
        devices: the `policy_device` of each worker; None: not given.

    Raises:
        ValueError: no worker; one that does not exist; a device without a worker.

    >>> chosen_workers([0, "cuda:1"], ["cpu", "cuda:0", "cuda:1", "cuda:1"])
    [0, 2, 3]
    """
    listed = worker_ids if isinstance(worker_ids, list | tuple | range | set | np.ndarray) else [worker_ids]
    if len(listed) == 0:
        raise ValueError("worker_ids: expected at least one worker, or None for all, got none")
    chosen: set[int] = set()
    for one in listed:
        if isinstance(one, int | np.integer) and not isinstance(one, bool):
            _check_workers([int(one)], len(devices))
            chosen.add(int(one))
            continue
        workers = [
            worker for worker, device in enumerate(devices) if device is not None and str(device) == str(one)
        ]
        if not workers:
            raise ValueError(
                f"worker_ids: expected the index of a worker or the policy_device of one, got {one!r}; the devices "
                f"are {', '.join(map(str, devices))}"
            )
        chosen.update(workers)
    return sorted(chosen)


def _check_workers(workers: Sequence[int], count: int) -> None:
    outside = [worker for worker in workers if not 0 <= worker < count]
    if outside:
        which = "worker 0, the only one" if count == 1 else f"workers 0 to {count - 1}"
        raise ValueError(f"{_CALLER}: expected {which}, got {', '.join(map(str, outside))}")
