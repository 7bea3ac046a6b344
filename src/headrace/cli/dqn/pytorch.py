"""PyTorch, or an error that says how to install it."""

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    raise ImportError('headrace train needs torch: pip install "headrace[torch]"') from error

__all__ = ["functional", "nn", "torch"]
