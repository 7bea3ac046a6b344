"""Loaders that torch's `DataLoader` takes as datasets."""

# Rules: loaders LP1

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from headrace.replay.conversion.torch_batch import TorchBatch

try:
    from torch.utils.data import IterableDataset
except ImportError as error:
    raise ImportError('Loader(to="torch") needs torch: pip install "headrace[torch]"') from error

L = TypeVar("L")


@cache
def torch_dataset(loader: type[L]) -> type[L]:
    """Returns the class of the loaders that are datasets, too: `DataLoader(..., batch_size=None)` gives their batches.

    Args:
        loader: class of the loaders, whose pickles begin with their class.

    >>> from headrace.loaders.loader import Loader
    >>> issubclass(torch_dataset(Loader), Loader), issubclass(torch_dataset(Loader), IterableDataset)
    (True, True)
    """

    class TorchLoader(loader, IterableDataset[TorchBatch]):  # type: ignore[valid-type, misc]
        def __reduce__(self) -> tuple[Any, ...]:
            # The class is made anew in the other process.
            rebuild, (_, *arguments) = super().__reduce__()
            return rebuild, (loader, *arguments)

    return TorchLoader
