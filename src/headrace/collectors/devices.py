"""The devices of a collector, from the arguments `device`, `storing_device`, `env_device` and `policy_device`."""

# Rules: collectors CD1 to CD3

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.collectors.batches.batch import Batch

CPU = "cpu"


class Devices(NamedTuple):
    """The devices of one worker, as torch names them; None: not given.

    Attributes:
        storing: of batches; None and "cpu" are NumPy arrays.
        env: of environments.
        policy: of the policy.
    """

    storing: str | None
    env: str | None
    policy: str | None


def worker_devices(
    workers: int, *, device: Any, storing_device: Any, env_device: Any, policy_device: Any
) -> list[Devices]:
    """Returns the devices of each worker.

    Args:
        workers: W.
        device: stands for each of the others that is None.
        storing_device, env_device, policy_device: a string, the index of a CUDA device, a `torch.device`, or a list
            with one of these for each worker.

    Raises:
        ValueError: a list of another length; torch does not know the device.
        ImportError: a device other than "cpu", without torch.

    >>> worker_devices(2, device="cpu", storing_device=None, env_device=None, policy_device=[None, "cpu"])
    [Devices(storing='cpu', env='cpu', policy=None), Devices(storing='cpu', env='cpu', policy='cpu')]
    """
    given = {"storing_device": storing_device, "env_device": env_device, "policy_device": policy_device}
    columns = [
        _of_workers(*(("device", device) if value is None else (name, value)), workers)
        for name, value in given.items()
    ]
    return [Devices(*row) for row in zip(*columns, strict=True)]


def check_policy_devices(devices: Sequence[Devices]) -> None:
    """Refuses devices of policies that this machine lacks.

    Raises:
        ValueError: there is no such device.

    >>> check_policy_devices([Devices(None, None, "cpu")])
    """
    for policy in {each.policy for each in devices} - {None, CPU}:
        from headrace.batches.torch_devices import torch_device

        torch_device("policy_device", policy)


class Storing:
    """Puts batches on the storing device of the worker that collected them.

    Args:
        devices: of each worker.

    Raises:
        ValueError: there is no such device.

    >>> batch = Batch({})
    >>> Storing([Devices(None, None, None)])(batch, 0) is batch
    True
    """

    def __init__(self, devices: Sequence[Devices]) -> None:
        stores: dict[str | None, Callable[[Batch], Batch] | None] = {None: None, CPU: None}
        for storing, _, _ in devices:
            if storing is not None and storing not in stores:
                from headrace.collectors.batches.storing import store_on

                stores[storing] = store_on(storing)
        self._stores = [stores[storing] for storing, _, _ in devices]

    def __call__(self, batch: Any, worker_idx: int) -> Any:
        """Returns a batch of a worker on its device; any other object as it is."""
        store = self._stores[worker_idx]
        return store(batch) if store is not None and isinstance(batch, Batch) else batch


def _of_workers(name: str, value: Any, workers: int) -> list[str | None]:
    if not isinstance(value, list | tuple):
        return [_device_name(name, value)] * workers
    if len(value) != workers:
        raise ValueError(
            f"{name}: expected one device, or a list of {workers}, one for each worker, got {len(value)}"
        )
    return [_device_name(name, each) for each in value]


def _device_name(name: str, device: Any) -> str | None:
    if device is None:
        return None
    if isinstance(device, str) and device == CPU:
        return CPU
    try:
        from headrace.batches.torch_devices import named_device
    except ImportError as error:
        raise ImportError(f'{name}: {device!r} needs torch: pip install "headrace[torch]"') from error
    found = named_device(name, device)
    return CPU if found.type == CPU else str(found)
