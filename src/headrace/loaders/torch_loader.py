"""A loader that torch's `DataLoader` takes as a dataset."""

# Rules: loaders LP1

from __future__ import annotations

from headrace.loaders.loader import Loader
from headrace.loaders.torch_batch import TorchBatch

try:
    from torch.utils.data import IterableDataset
except ImportError as error:
    raise ImportError('Loader(to="torch") needs torch: pip install "headrace[torch]"') from error


class TorchLoader(Loader, IterableDataset[TorchBatch]):
    """The dataset that `Loader(..., to="torch")` makes.

    `DataLoader(loader, batch_size=None)` gives its batches unchanged.

    >>> issubclass(TorchLoader, Loader) and issubclass(TorchLoader, IterableDataset)
    True
    """
