"""Reading a memory: copies of rows by index, of everything, and which rows make a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headrace.memories.order import Written, by_environment, in_one_episode
from headrace.memories.reading import MiniBatch, as_rows, gather, gather_parts, split
from headrace.memories.storage import Storage


class Readable(Storage):
    """Storage that is read in mini-batches and in sequences; what `Memory` reads with."""

    def __init__(
        self, memory_size: int, num_envs: int, device: str | torch.device | None, episode_ends: Sequence[str]
    ) -> None:
        super().__init__(memory_size, num_envs, device)
        if isinstance(episode_ends, str):
            raise TypeError(f"episode_ends: expected a list or tuple of names, got {episode_ends!r}")
        self.sampling_indexes: Any = None
        self._episode_ends = tuple(episode_ends)

    @property
    def all_sequence_indexes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The flat indexes of all cells, int64[memory_size * num_envs], environment by environment."""
        cells = np.arange(self.memory_size * self.num_envs)
        return cells.reshape(self.memory_size, self.num_envs).T.reshape(-1)

    def sample(
        self, names: Sequence[str], batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[MiniBatch]:
        """Choose rows and read them; for derived classes to say how.

        Raises:
            NotImplementedError: always, in this class.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to sample; see RandomMemory")

    def sample_by_index(self, names: Sequence[str], indexes: Any, mini_batches: int = 1) -> list[MiniBatch]:
        """Copies of the rows at flat indexes `row * num_envs + env`.

        Args:
            names: which tensors, in which order.
            indexes: integers (negative ones count from the end) in a list, array or tensor, a boolean mask
                over all cells, or a slice.
            mini_batches: how many parts to return; the first have one row more if it does not come out even.

        Returns:
            For each mini-batch a list with, for each name, a tensor `(n, *size)`, or None if it is absent.

        Raises:
            KeyError: no tensor has this name.
            TypeError: `names` is a string, or the indexes are not integers.
            IndexError: an index out of range, or a mask of another length.
            ValueError: `mini_batches` below 1.
        """
        views = self._views(names)
        rows = as_rows(indexes, self.memory_size * self.num_envs)
        return gather_parts(views, self._here(rows), mini_batches)

    def sample_all(
        self, names: Sequence[str], mini_batches: int = 1, sequence_length: int = 1
    ) -> list[MiniBatch]:
        """Copies of all that is stored, in the order of storage.

        With `sequence_length` above 1: environment by environment, each from its oldest sample to its newest,
        cut into runs of that length (the last of each may be shorter). Mini-batches hold whole runs.

        Returns:
            For each mini-batch a list with, for each name, a tensor `(n, *size)`, or None if it is absent.

        Raises:
            KeyError: no tensor has this name.
            TypeError: `names` is a string.
            ValueError: `mini_batches` or `sequence_length` below 1.
        """
        views = self._views(names)
        self._check_length(sequence_length)
        if sequence_length == 1:
            return [gather(views, slice(*bounds)) for bounds in split(len(self), mini_batches)]
        rows, starts = by_environment(self._written(), sequence_length)
        here = self._here(rows)
        bounds = split(len(starts) - 1, mini_batches)
        return [gather(views, here[starts[start] : starts[stop]]) for start, stop in bounds]

    def get_sampling_indexes(self) -> Any:
        """The flat indexes of the last `sample`, in the order of its rows; None before the first."""
        return self.sampling_indexes

    def sequence_starts(self, sequence_length: int) -> torch.Tensor:
        """The flat index of the first row of each valid sequence, oldest first.

        A sequence is that many consecutive steps of one environment. It crosses the end of the storage, but
        not the write head, and no episode's end (see `episode_ends`).

        Returns:
            int64[n].

        Raises:
            ValueError: `sequence_length` below 1.
        """
        self._check_length(sequence_length)
        return self._valid_starts(self._written(), sequence_length)

    def sequence_indexes(self, starts: Any, sequence_length: int) -> torch.Tensor:
        """The flat indexes of the rows of sequences that start at the flat indexes `starts`.

        Returns:
            int64[len(starts) * sequence_length].

        Raises:
            IndexError: a start out of range.
            ValueError: `sequence_length` below 1.
        """
        self._check_length(sequence_length)
        rows = as_rows(starts, self.memory_size * self.num_envs)
        return self._written().sequences(rows, sequence_length).reshape(-1)

    def _views(self, names: Sequence[str]) -> list[torch.Tensor | None]:
        if not isinstance(names, (list, tuple)):
            raise TypeError(f"names: expected a list or tuple of names, got {names!r}")
        try:
            return [self.tensors_view[name] for name in names]
        except KeyError:  # An absent name gives None; an unknown one the KeyError of `_slot`.
            return [None if name in self._absent else self._slot(name).view for name in names]

    def _valid_starts(self, written: Written, sequence_length: int) -> torch.Tensor:
        positions = torch.arange(written.possible_starts(sequence_length))
        ends = self._end_views() if sequence_length > 1 and len(positions) else []
        if ends:
            order = written.flat_indexes(torch.arange(written.stored))
            valid = in_one_episode(self._is_end(ends, order), self.num_envs, sequence_length)
            positions = positions[valid]
        return written.flat_indexes(positions)

    def _here(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if rows.device == self.device else rows.to(self.device)

    def _end_views(self) -> list[torch.Tensor]:
        return [self.tensors_view[name] for name in self._episode_ends if name in self.tensors_view]

    def _is_end(self, ends: list[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        rows = self._here(rows)
        marks = [view.index_select(0, rows).flatten(1).ne(0).any(dim=1) for view in ends]
        return torch.stack(marks).any(dim=0).cpu()

    @staticmethod
    def _check_length(sequence_length: int) -> None:
        if sequence_length < 1:
            raise ValueError(f"sequence_length: expected at least 1, got {sequence_length}")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if isinstance(
            self.sampling_indexes, torch.Tensor
        ):  # as bytes, like the tensors: each process has its own
            state["sampling_indexes"] = None
            state["_indexes"] = self.sampling_indexes.cpu().numpy()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        indexes = state.pop("_indexes", None)
        super().__setstate__(state)
        if indexes is not None:
            self.sampling_indexes = torch.from_numpy(indexes)
