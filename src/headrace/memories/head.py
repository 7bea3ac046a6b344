"""The write head of a memory, as one word that processes can share.

The position and the flag are one 64-bit word, so a reader in another process always sees both of one instant:
`word = 2 * flat + filled`, `flat = row * num_envs + env`.
"""

from __future__ import annotations

import torch


class Head:
    """The write head: a flat position, and whether every cell has been written."""

    __slots__ = ("_cell", "_word")

    def __init__(self, cell: torch.Tensor | None = None) -> None:
        self._cell = torch.zeros(1, dtype=torch.int64) if cell is None else cell
        self._word = self._cell.numpy()

    @property
    def cell(self) -> torch.Tensor:
        """The word as int64[1]; another process receives it to share the head."""
        return self._cell

    def get(self) -> tuple[int, bool]:
        """The flat position of the next sample, and whether the memory is full."""
        word = self._word.item()
        return word >> 1, bool(word & 1)

    def set(self, flat: int, filled: bool) -> None:
        """Moves the head, in one store."""
        self._word[0] = flat << 1 | filled

    def is_shared(self) -> bool:
        """Whether other processes can see this head."""
        return bool(self._cell.is_shared())  # type: ignore[no-untyped-call]

    def share(self) -> None:
        """Moves the word into shared memory."""
        self._cell.share_memory_()  # type: ignore[no-untyped-call]
        self._word = self._cell.numpy()  # the array before points to the freed word
