"""A memory that samples uniformly at random."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch

from headrace.memories.memory import Memory
from headrace.memories.order import Written
from headrace.memories.reading import MiniBatch, check_mini_batches, gather_parts

_REDRAWS = 8


class RandomMemory(Memory):
    """A memory whose samples, or sequences, are all equally likely.

    Args:
        memory_size: rows.
        num_envs: environments, each a column.
        device: where the tensors live; None is `cuda:0` if there is one, else the CPU.
        export: save the memory each time that it is full, before anything is overwritten.
        export_format: "pt", "npz" or "csv".
        export_directory: where to save; the working directory if empty.
        replacement: draw with replacement. Without, a batch holds no row (or start of a sequence) twice, and
            is cut to what there is.
        episode_ends: see `Memory`.
        generator: where the random numbers come from; torch's global generator if None.

    Raises:
        TypeError: `memory_size` or `num_envs` is not an integer.
        ValueError: a size below 1, no such device, or no such format.

    Example:
        >>> memory = RandomMemory(memory_size=100, device="cpu", generator=torch.Generator().manual_seed(0))
        >>> memory.create_tensor("states", size=4)
        True
        >>> for step in range(5):
        ...     memory.add_samples(states=torch.full((4,), float(step)))
        >>> [[states]] = memory.sample(["states"], batch_size=2, sequence_length=3)
        >>> states.shape  # two sequences of three rows
        torch.Size([6, 4])
        >>> memory.get_sampling_indexes().tolist()
        [2, 3, 4, 0, 1, 2]
    """

    def __init__(
        self,
        memory_size: int,
        num_envs: int = 1,
        device: str | torch.device | None = None,
        export: bool = False,
        export_format: str = "pt",
        export_directory: str | PathLike[str] = "",
        replacement: bool = True,
        *,
        episode_ends: Sequence[str] = ("terminated", "truncated", "dones"),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            memory_size, num_envs, device, export, export_format, export_directory, episode_ends=episode_ends
        )
        self._replacement = replacement
        self._generator = generator

    def sample(
        self, names: Sequence[str], batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[MiniBatch]:
        """Draw rows, or starts of sequences, uniformly, and copy them.

        Args:
            names: which tensors, in which order.
            batch_size: how many rows, or sequences.
            mini_batches: how many parts to return; sequences stay whole.
            sequence_length: rows of a sequence, consecutive steps of one environment within one episode.

        Returns:
            For each mini-batch a list with, for each name, a tensor `(n * sequence_length, *size)`, or None
            if it is absent. `get_sampling_indexes` has the rows' flat indexes.

        Raises:
            KeyError: no tensor has this name.
            TypeError: `names` is a string.
            ValueError: a negative `batch_size`, a length or number of mini-batches below 1, or nothing to
                draw from.
        """
        views = self._views(names)
        if batch_size < 0:
            raise ValueError(f"batch_size: expected at least 0, got {batch_size}")
        self._check_length(sequence_length)
        check_mini_batches(mini_batches)
        written = self._written()
        rows = self._draw(written, batch_size, sequence_length)
        if sequence_length > 1:
            rows = written.sequences(rows, sequence_length).reshape(-1)
        batches = gather_parts(views, self._here(rows), mini_batches, sequence_length)
        self.sampling_indexes = rows
        return batches

    def _draw(self, written: Written, batch_size: int, sequence_length: int) -> torch.Tensor:
        """Flat starts int64[n], uniform over the valid ones."""
        if batch_size == 0:
            return torch.empty(0, dtype=torch.int64)
        possible = written.possible_starts(sequence_length)
        if not possible:
            raise ValueError(f"there is nothing to draw from: {_asked(written, sequence_length)}")
        if sequence_length == 1:
            return self._draw_below(possible, batch_size)
        ends = self._end_views()
        if ends and not self._replacement:
            return self._draw_from_valid(written, batch_size, sequence_length)
        starts = written.flat_indexes(self._draw_below(possible, batch_size))
        return self._redraw_refused(starts, written, ends, sequence_length) if ends else starts

    def _redraw_refused(
        self, starts: torch.Tensor, written: Written, ends: list[torch.Tensor], sequence_length: int
    ) -> torch.Tensor:
        # Costs nothing in proportion to the memory, unless few starts are valid.
        possible = written.possible_starts(sequence_length)
        refused = self._refused(starts, written, ends, sequence_length)
        for _ in range(_REDRAWS):
            if len(refused) == 0:
                return starts
            drawn = written.flat_indexes(self._draw_below(possible, len(refused)))
            starts[refused] = drawn
            refused = refused[self._refused(drawn, written, ends, sequence_length)]
        if len(refused):
            starts[refused] = self._draw_from_valid(written, len(refused), sequence_length)
        return starts

    def _refused(
        self, starts: torch.Tensor, written: Written, ends: list[torch.Tensor], sequence_length: int
    ) -> torch.Tensor:
        """Which of the sequences go on after the end of an episode, as positions in `starts`."""
        rows = written.sequences(starts, sequence_length - 1)
        crosses = self._is_end(ends, rows.reshape(-1)).view(rows.shape).any(dim=1)
        return crosses.nonzero().view(-1)

    def _draw_from_valid(self, written: Written, batch_size: int, sequence_length: int) -> torch.Tensor:
        starts = self._valid_starts(written, sequence_length)
        if len(starts) == 0:
            asked = _asked(written, sequence_length)
            raise ValueError(
                f"every sequence crosses the end of an episode: {asked}; episode_ends=() lets them cross"
            )
        return starts[self._draw_below(len(starts), batch_size)]

    def _draw_below(self, bound: int, batch_size: int) -> torch.Tensor:
        # Exactly these calls: the same seed gives the rows that skrl's memory would give.
        generator = self._generator
        device = None if generator is None else generator.device
        if self._replacement:
            drawn = torch.randint(0, bound, (batch_size,), generator=generator, device=device)
        else:
            drawn = torch.randperm(bound, generator=generator, device=device)[:batch_size]
        return drawn if generator is None else drawn.cpu()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        generator = self._generator
        if generator is not None:
            state["_generator"] = (generator.device, generator.get_state().numpy())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_generator"] is not None:
            device, numbers = state["_generator"]
            state["_generator"] = torch.Generator(device)
            state["_generator"].set_state(torch.from_numpy(numbers).clone())
        super().__setstate__(state)


def _asked(written: Written, sequence_length: int) -> str:
    return f"{written.stored} samples are stored, sequence_length is {sequence_length}"
