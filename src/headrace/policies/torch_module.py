"""Torch modules as policies: tensors in and out, without gradients. Their train or eval mode is left alone."""

# Rules: collectors CP2

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from headrace.policies.fetching import fetched
from headrace.policies.placement import device_of, tensors_on
from headrace.policies.result import PolicyResult, Read
from headrace.policies.tensordict_module import TensorDictPolicy, takes_tensordict
from headrace.spec import Signature


def form_of_module(
    module: torch.nn.Module, acted: Signature, read: Read
) -> Callable[[Mapping[str, Any]], PolicyResult]:
    """Adapts a module, which is called with tensors on its device; on the CPU over the memory of the observations.

    Args:
        module: takes the observation, or a TensorDict (`takes_tensordict`).
        acted: `Signature({"action": ...})`.
        read: reads what it returns, unless that is a TensorDict.
    """
    to_tensors = tensors_on(device_of(module))
    if takes_tensordict(module):
        call = TensorDictPolicy(module, acted, read)
        return without_gradients(lambda inputs: call(to_tensors(inputs["observation"])))
    return without_gradients(lambda inputs: read(module(to_tensors(inputs["observation"])), acted))


def without_gradients(
    act: Callable[[Mapping[str, Any]], PolicyResult],
) -> Callable[[Mapping[str, Any]], PolicyResult]:
    """Returns a call of a policy that runs under `no_grad` and returns arrays."""

    def call(inputs: Mapping[str, Any]) -> PolicyResult:
        with torch.no_grad():
            return fetched(act(inputs))

    return call
