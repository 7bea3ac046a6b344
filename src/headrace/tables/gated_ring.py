"""Items behind a rate limiter: the counts of a table, and the decisions that follow from them."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.selectors import CustomSelector, Uniform
from headrace.tables.description.table import Table
from headrace.tables.item_ring import ItemRing
from headrace.tables.items.layout import LOOKAHEAD, PADDED, STREAM
from headrace.tables.table_state import COUNTS


class GatedRing:
    """Items behind a rate limiter. The replay's lock is held throughout.

    Args:
        table: description of the table.
        ring: its items.
        counts: its counts so far, by the names `COUNTS`; None for zeros.

    Attributes:
        name, max_times: of the table.
        limiter: the rate limiter now.
        is_custom: whether a selector is the user's own.
        updates, ignored_updates, ignored_deletes, resets: counts.
    """

    def __init__(self, table: Table, ring: ItemRing, counts: Mapping[str, int] | None = None) -> None:
        sampler = table.sampler
        self.name = table.name
        self.ring = ring
        self.max_times = table.max_times_sampled
        self.is_custom = isinstance(sampler, CustomSelector) or isinstance(table.remover, CustomSelector)
        self._is_distinct = isinstance(sampler, Uniform) and not sampler.replacement
        self._takes_items_out = self._is_distinct or bool(self.max_times)
        self._is_never_fused = self._is_distinct or isinstance(sampler, CustomSelector)
        self._use_limiter(table.rate_limiter)
        counts = {**dict.fromkeys(COUNTS, 0), **(counts or {})}
        self.updates = counts["updates"]
        self.ignored_updates, self.ignored_deletes = counts["ignored_updates"], counts["ignored_deletes"]
        self.resets = 0
        # Kernels count insertions and draws, so the counts are right after any error, Ctrl-C included.
        self._inserts_before = counts["inserts"] - ring.items.inserted
        self._samples_before = counts["samples"] - ring.items.sampled

    def _use_limiter(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self._never_blocks = limiter.never_blocks_inserts

    # ---- counts ----------------------------------------------------------------------------------------------------

    @property
    def inserts(self) -> int:
        """Items that were inserted."""
        return self._inserts_before + self.ring.items.inserted

    @property
    def samples(self) -> int:
        """Samples of all items."""
        return self._samples_before + self.ring.items.sampled

    @property
    def deletes(self) -> int:
        """Items that left."""
        return self.inserts - len(self.ring)

    @property
    def _counts(self) -> tuple[int, int, int]:
        """Inserts, samples and deletes, for the limiter."""
        items = self.ring.items
        inserts = self._inserts_before + items.inserted
        return inserts, self._samples_before + items.sampled, inserts - items.live

    def _count_anew(self) -> None:
        """Sets inserts and samples to zero."""
        self._inserts_before, self._samples_before = -self.ring.items.inserted, -self.ring.items.sampled
        self.resets += 1

    # ---- decisions -------------------------------------------------------------------------------------------------

    def _insertable(self) -> float:
        """Returns the number of items that the limiter lets in now, perhaps infinite."""
        return self.limiter.insertable(*self._counts)

    def _admits(self, n: int) -> bool:
        """Returns whether the limiter admits a batch of n and the items suffice."""
        # Rules: replay L6
        items = self.ring.items
        # Without `_counts`, because that call takes 2 % of a batch.
        inserts = self._inserts_before + items.inserted
        if not self.limiter.can_sample(
            inserts, self._samples_before + items.sampled, inserts - items.live, n
        ):
            return False
        if not self._takes_items_out:
            return True
        size = items.live
        if self._is_distinct and size < n:
            return False
        # Every item allows at least one sample, so only a table smaller than the batch is searched.
        return not self.max_times or size >= n or self.ring.supply(self.max_times) >= n

    def _refuse_impossible(self, n: int) -> None:
        """Raises ValueError if a batch of n can never be served."""
        largest = self.limiter.largest_batch()
        size = self.ring.max_size
        if self._takes_items_out:
            largest = min(largest, size * (1 if self._is_distinct else self.max_times))
        if n > largest and not self._admits(n):
            raise ValueError(
                f"table {self.name!r}: a batch of {n} could never be served: at most {largest:g} samples are allowed "
                f"at once ({self.limiter}, max_size={size}, max_times_sampled={self.max_times})"
            )

    @property
    def can_draw_fused(self) -> bool:
        """Whether a draw removes no item and all items have the same number of rows."""
        ring, window = self.ring, self.ring.window
        return not (
            self.max_times
            or self._is_never_fused
            or ring.has_windows
            or window[PADDED]
            or window[LOOKAHEAD] == STREAM
        )
