"""Devices of the tensors of a memory."""

from __future__ import annotations

import warnings

import torch


def parse_device(device: str | torch.device | None) -> torch.device:
    """Returns the device to use: by default `cuda:0` or the CPU; for an absent device the CPU, with a warning.

    Raises:
        ValueError: the string is not a device.
    """
    if device is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device: expected a torch device such as 'cpu' or 'cuda:0', got {device!r}"
        ) from error
    if parsed.type == "cuda" and (parsed.index or 0) >= torch.cuda.device_count():
        warnings.warn(f"device {device!s} is not on this machine; the memory uses the CPU", RuntimeWarning, 4)
        return torch.device("cpu")
    return parsed
