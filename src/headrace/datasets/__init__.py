"""Episodes in and out of files, exactly: Minari, Parquet, npz."""

from headrace.datasets.dataset import EpisodeDataset

__all__ = ["EpisodeDataset"]
