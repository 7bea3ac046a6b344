"""In which order the cells of a memory were written, and which runs of them are sequences.

Positions count in the order of writing: position j is the j-th oldest sample stored and lies at flat index
`(oldest + j) % cells`. A sequence from position j is the positions `j, j + num_envs, ...`: one environment,
consecutive steps, across the physical end of the storage but never across the write head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Written(NamedTuple):
    """The written part of a memory: its two sizes, and the head at one moment."""

    memory_size: int
    num_envs: int
    flat: int
    filled: bool

    @property
    def cells(self) -> int:
        """All cells, written or not."""
        return self.memory_size * self.num_envs

    @property
    def stored(self) -> int:
        """How many samples are stored."""
        return self.cells if self.filled else self.flat

    @property
    def oldest(self) -> int:
        """The flat index of the oldest sample."""
        return self.flat if self.filled else 0

    def possible_starts(self, sequence_length: int) -> int:
        """How many positions, from 0 on, have enough samples after them; episode ends are not looked at."""
        return max(0, self.stored - self.num_envs * (sequence_length - 1))

    def flat_indexes(self, positions: torch.Tensor) -> torch.Tensor:
        """Where the samples of these positions lie."""
        return (positions + self.oldest) % self.cells if self.oldest else positions

    def sequences(self, starts: torch.Tensor, sequence_length: int) -> torch.Tensor:
        """The flat indexes int64[n, L] of the rows of sequences that start at the flat indexes `starts`."""
        steps = torch.arange(0, sequence_length * self.num_envs, self.num_envs, device=starts.device)
        return (starts.unsqueeze(1) + steps) % self.cells


def in_one_episode(is_end: torch.Tensor, num_envs: int, sequence_length: int) -> torch.Tensor:
    """For each position that has enough samples after it: is none of its rows but the last an episode's end?

    Args:
        is_end: bool[stored], in order of position.
        num_envs: how far apart two steps of one environment are.
        sequence_length: rows of a sequence.

    Returns:
        bool[stored - num_envs * (sequence_length - 1)].
    """
    stored = len(is_end)
    rows = -(-stored // num_envs)
    padded = torch.zeros(rows * num_envs, dtype=torch.int64, device=is_end.device)
    padded[:stored] = is_end
    # Ends up to and including each row; a row of zeros before the first. Two of them tell of a whole window.
    ends = torch.zeros((rows + 1, num_envs), dtype=torch.int64, device=is_end.device)
    torch.cumsum(padded.view(rows, num_envs), dim=0, out=ends[1:])
    before, until_last = ends[: rows - sequence_length + 1], ends[sequence_length - 1 : rows]
    return (before == until_last).view(-1)[: stored - num_envs * (sequence_length - 1)]


def chronological(written: Written, newest: int) -> torch.Tensor:
    """Flat indexes of the stored samples: the oldest of each environment, then the second oldest of each, ...

    Args:
        written: what is stored.
        newest: how many samples of an environment are kept at most, its newest ones.

    Returns:
        int64: entry `k * num_envs + e` is the k-th oldest kept sample of environment e.
    """
    row, env = divmod(written.flat, written.num_envs)
    envs = torch.arange(written.num_envs)
    behind = row + (envs < env).to(torch.int64)  # the row that each environment writes next
    count = torch.full_like(envs, written.memory_size) if written.filled else behind
    first = behind if written.filled else torch.zeros_like(envs)
    kept = count.clamp(max=newest)
    steps = torch.arange(int(kept.max())).unsqueeze(1)
    rows = (first + count - kept + steps) % written.memory_size
    return (rows * written.num_envs + envs)[steps < kept]


def by_environment(written: Written, run_length: int) -> tuple[torch.Tensor, list[int]]:
    """All that is stored, environment by environment and oldest first, cut into runs.

    Args:
        written: what is stored.
        run_length: rows of a run; the last of each environment may be shorter.

    Returns:
        The flat indexes, and where in them each run starts, with their number as the last entry.
    """
    order = chronological(written, written.memory_size)
    stored, num_envs = len(order), written.num_envs
    table = torch.full((-(-stored // num_envs) * num_envs,), -1)
    table[:stored] = order
    lanes = table.view(-1, num_envs).T.reshape(-1)
    counts = [(stored - env + num_envs - 1) // num_envs for env in range(min(num_envs, stored))]
    starts: list[int] = []
    base = 0
    for count in counts:
        starts.extend(range(base, base + count, run_length))
        base += count
    return lanes[lanes >= 0], [*starts, stored]
