"""torch devices: which there are, and copies to CUDA on a stream of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError('a torch device needs torch: pip install "headrace[torch]"') from error

_Tensors = TypeVar("_Tensors")


def named_device(name: str, device: Any) -> torch.device:
    """Returns a device, which need not be one of this machine.

    Args:
        name: of the argument, for messages.
        device: a string, a `torch.device`, or the index of a CUDA device.

    Raises:
        ValueError: torch does not know the device.

    >>> named_device("device", 1)
    device(type='cuda', index=1)
    """
    is_index = isinstance(device, int | np.integer) and not isinstance(device, bool)
    try:
        return torch.device(f"cuda:{device}" if is_index else device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"{name}: expected a torch device such as 'cpu' or 'cuda:0', got {device!r}"
        ) from error


def torch_device(name: str, device: Any) -> torch.device:
    """Returns a device of this machine; arguments as for `named_device`.

    Raises:
        ValueError: torch does not know the device, or this machine lacks the CUDA device.

    >>> torch_device("device", "cpu")
    device(type='cpu')
    """
    wanted = named_device(name, device)
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{name}: {device!s} is not on this machine; it has {torch.cuda.device_count()} CUDA devices"
        )
    return wanted


class SideStream:
    """Copies from host memory to a CUDA device while the streams of others compute.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Made at the first copy: until then the process may be forked, and CUDA does not survive a fork.
        self._stream: torch.cuda.Stream | None = None

    def start(
        self, tensors: _Tensors, apply: Callable[[Callable[[torch.Tensor], torch.Tensor], _Tensors], _Tensors]
    ) -> tuple[_Tensors, torch.cuda.Event]:
        """Starts to copy; `finish` must come before the copies are used. torch keeps the pinned memory until then.

        Args:
            tensors: a container of tensors.
            apply: returns the container with a function of each tensor.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        pinned = apply(torch.Tensor.pin_memory, tensors)
        with torch.cuda.stream(self._stream):
            copies = apply(lambda tensor: tensor.to(self._device, non_blocking=True), pinned)
            return copies, self._stream.record_event()

    def finish(self, copies: Iterable[torch.Tensor], copied: torch.cuda.Event) -> None:
        """Lets the caller's stream wait for copies; the caller itself does not wait."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        for tensor in copies:
            # Its memory came from the side stream, which must not reuse it before this stream is done with it.
            tensor.record_stream(current)
