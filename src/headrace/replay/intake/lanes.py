"""The lanes of a source of steps: side by side in as few blocks as pages hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.block import LaneBlock
from headrace.store.left_lanes import LeftLanes
from headrace.store.staging import Stage
from headrace.store.store import Store


class Lanes:
    """Lanes that are appended together.

    Args:
        store: of their rows.
        count: number N of lanes.
        history: newest rows of each lane that stay in reach of later windows.
        across: rows of them that stay in reach over the ends of episodes.

    Attributes:
        count: as above.
        blocks: the lanes, block by block.
        spans: each block with its lanes.
        stages: of each block the buffer for its next step; None for a single lane, which is written in place.
        extra_pages: pages that the lanes may take beyond the capacity (`Store.allow`).
    """

    def __init__(self, store: Store, count: int, history: int, across: int) -> None:
        self.count = count
        most = store.arrays.page_rows
        firsts = range(0, count, most)
        sizes = [min(most, count - first) for first in firsts]
        self.stages = [None if count == 1 else Stage(store.signature, size) for size in sizes]
        self.blocks = [
            LaneBlock(store, size, history, across, stage)
            for size, stage in zip(sizes, self.stages, strict=True)
        ]
        self.spans = [
            (block, slice(first, first + block.lanes))
            for first, block in zip(firsts, self.blocks, strict=True)
        ]
        # Each block beside the first fills pages of its own, and may have ended in the middle of others.
        self.extra_pages = 2 * (len(self.blocks) - 1)
        store.allow(self.extra_pages)

    @property
    def steps(self) -> NDArray[np.int64]:
        """int64[N]: rows of the episode under way in each lane; 0: there is none."""
        return np.concatenate([block.lane_steps for block in self.blocks]).astype(np.int64)

    def find(self, lane: int) -> tuple[LaneBlock, int]:
        """Returns the block of a lane, and its index in the block.

        Raises:
            ValueError: no such lane.
        """
        for block, span in self.spans:
            if span.start <= lane < span.stop:
                return block, lane - span.start
        raise ValueError(f"lane: expected 0 to {self.count - 1}, got {lane}")

    def by_block(self, lanes: NDArray[np.int64]) -> Iterator[tuple[LaneBlock, NDArray[np.int64], Any]]:
        """Yields the blocks of some lanes, with the lanes as counted in the block, and an index of them in `lanes`."""
        if len(self.blocks) == 1:
            if len(lanes):
                yield self.blocks[0], lanes, slice(None)
            return
        for block, span in self.spans:
            here = (lanes >= span.start) & (lanes < span.stop)
            if here.any():
                yield block, lanes[here] - span.start, here

    def leave(self) -> None:
        """Lets lanes of a later writer go on in the rest of the present pages; `release` follows."""
        for block in self.blocks:
            block.leave()

    def suspend(self) -> LeftLanes | None:
        """Gives back all pages in the midst of episodes; see `LaneBlock.suspend`. Several blocks never go on."""
        left = [block.suspend() for block in self.blocks]
        return left[0] if len(left) == 1 else None

    def release(self) -> list[int]:
        """Forgets all pages; returns those that are to be given back."""
        return [page for block in self.blocks for page in block.release()]
