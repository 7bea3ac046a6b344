"""The forms of policies: a callable, an object with `compute_actions`, a torch module, also one on TensorDicts."""

# Rules: views-rollouts P1, P2; collectors CP2, CP6

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.policies.fetching import fetched
from headrace.policies.result import PolicyResult, Read, actions_or_triple
from headrace.spec import Signature
from headrace.weights import is_torch_module

if TYPE_CHECKING:
    import torch

Form: TypeAlias = Callable[[Mapping[str, Any]], PolicyResult]
"""A policy of any form. It takes the inputs by name, trees of arrays `[B, ...]`: "observation", for a recurrent policy
"state_in_0", "state_in_1", ..., and the views that the policy reads."""


def placed_policy(policy: Any, device: str | None) -> Any:
    """Returns the policy on a device: a copy if it is a torch module elsewhere, else the object itself.

    Raises:
        ValueError: there is no such device.
    """
    # Rules: collectors CP5
    if device is None or not is_torch_module(policy):
        return policy
    from headrace.policies.placement import placed

    return placed(policy, device)


def tensor_device(policy: Any, device: str | None) -> torch.device | None:
    """Returns the device of the tensors that `form_of` gives a policy; None if it gives NumPy arrays.

    Args:
        policy, device: see `form_of`.

    Raises:
        ValueError: there is no such device.

    >>> tensor_device(lambda observation: observation, None) is None
    True
    """
    if is_torch_module(policy) and not reads_views(policy):
        from headrace.policies.placement import device_of

        return device_of(policy)
    if device is None or device == "cpu":
        return None
    from headrace.policies.placement import present_device

    return present_device(device)


def check_policy(policy: Any) -> None:
    """Refuses an object that is not a policy of any form.

    Raises:
        TypeError: refused.
    """
    if isinstance(policy, type):
        name = policy.__name__
        raise TypeError(f"policy: expected an object, got the class {name}; give {name}()")
    if not callable(policy) and not reads_views(policy):
        predicts = callable(getattr(policy, "predict", None))
        raise TypeError(
            "policy: expected a callable on observations or an object with compute_actions(input_dict), got "
            f"{type(policy).__name__}"
            + ("; give a function, as in `lambda observation: model.predict(observation)[0]`" * predicts)
        )


def reads_views(policy: Any) -> bool:
    """Whether the policy has `compute_actions`, which takes views besides the observation."""
    return callable(getattr(policy, "compute_actions", None))


def form_of(policy: Any, acted: Signature, read: Read, device: str | None = None) -> Form:
    """Adapts a policy. Its results may be arrays of any library and device, and torch distributions.

    Args:
        policy: an object with `compute_actions(input_dict)`; a torch module, called under `no_grad` with the tensors of
            the observations, or with a TensorDict of them; or another callable on the observations.
        acted: `Signature({"action": ...})`.
        read: `actions_or_pair` or `actions_alone`, for the result of a callable.
        device: a torch device other than the CPU gives every policy tensors there. None: NumPy arrays, and for a torch
            module tensors on its own device.

    Raises:
        TypeError: not a policy.
        ValueError: there is no such device.

    >>> import numpy as np
    >>> from headrace.policies.result import actions_or_pair
    >>> form = form_of(lambda observation: observation + 1, Signature.like({"action": 0}), actions_or_pair)
    >>> form({"observation": np.array([4])})
    PolicyResult(actions=array([5]), state_outs=(), extras={})
    """
    check_policy(policy)
    form = _form_of(policy, acted, read)
    if device is None or device == "cpu" or (is_torch_module(policy) and not reads_views(policy)):
        return form
    from headrace.batches.torch_devices import torch_device
    from headrace.policies.placement import tensors_on

    to_tensors = tensors_on(torch_device("policy_device", device))
    return lambda inputs: form(to_tensors(inputs))


def _form_of(policy: Any, acted: Signature, read: Read) -> Form:
    is_module = is_torch_module(policy)
    if reads_views(policy):

        def act(inputs: Mapping[str, Any]) -> PolicyResult:
            return fetched(actions_or_triple(policy.compute_actions(inputs), acted))

        if is_module:
            from headrace.policies.torch_module import without_gradients

            return without_gradients(act)
        return act
    if is_module:
        from headrace.policies.torch_module import form_of_module

        return form_of_module(policy, acted, read)
    return lambda inputs: fetched(read(policy(inputs["observation"]), acted))
