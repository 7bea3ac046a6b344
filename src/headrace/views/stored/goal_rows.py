"""Rows of hindsight goals, and the rows needed for their rewards."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.hints import prefetch
    from headrace.kernels.kinds import Bool, Float, GivenDoubles, GivenLongs, Int, Longs, LongTable
    from headrace.store.layout import ENDED, FINAL, LANES
    from headrace.store.window import Window


class GoalRows:
    """Draws goals among the rows of a store. The store's lock must be held.

    Args:
        window: of the store.
        strategy: one of `goals.STRATEGIES`.
        is_post: whether the column of achieved goals has no value at final rows.
    """

    def __init__(self, window: Window, strategy: str, is_post: Bool) -> None:
        self.window = window
        self.of_all, self.of_last = strategy == "episode", strategy == "final"
        self.is_post = is_post

    def number_runs(self, rows: LongTable, runs: LongTable) -> int:
        """Numbers the runs of rows that share an item and an episode: each run has one goal.

        Only items that cross the end of an episode have more than one run.

        Args:
            rows: int64[B, L], -1 for padding.
            runs: int64[B, L], written: the number of each row's run, -1 for padding.

        Returns:
            The number of runs.
        """
        count: Int = 0
        with cython.nogil:
            for item in range(rows.shape[0]):
                for place in range(rows.shape[1]):
                    runs[item, place] = -1
                    if rows[item, place] < 0:
                        continue
                    if place == 0 or self.window.word(rows[item, place - 1]) & (FINAL | ENDED):
                        count += 1
                    runs[item, place] = count - 1
        return count

    def draw(
        self, rows: GivenLongs, runs: GivenLongs, uniforms: GivenDoubles, ratio: Float, goals: Longs
    ) -> None:
        """Draws for each run the row whose achieved goal it gets.

        Args:
            rows, runs: int64[M], the runs ascending.
            uniforms: float64[2 * R]: first whether each goal is replaced (below `ratio`), then the choice among the
                rows that can be drawn, in order.
            ratio: the probability that a goal is replaced.
            goals: int64[R], written: a row, or -1 for the stored goal.
        """
        before: Int = -1
        with cython.nogil:
            for index in range(rows.shape[0]):
                if rows[index] >= 0:
                    self._read_ahead(rows[index])
            for index in range(rows.shape[0]):
                run: Int = runs[index]
                if run <= before:
                    continue
                before = run
                goals[run] = -1
                if uniforms[run] < ratio:
                    goals[run] = self._goal_row(rows[index], uniforms[goals.shape[0] + run])

    def _read_ahead(self, row: Int) -> None:
        """Prefetches the words that `reach` will read: each would be a separate cache miss."""
        lanes: Int = self.window.pages[self.window.page_of(row), LANES]
        prefetch(self.window.steps, row)
        for power in range(7):
            prefetch(self.window.steps, row + (lanes << power))

    def _goal_row(self, row: Int, uniform: Float) -> Int:
        later: Int = self.window.reach(row, 1)
        if self.is_post and self.window.word(self.window.follow(row, later)) & FINAL:
            later -= 1  # -1 at a final row: it cannot be drawn itself.
        if not self.of_all:
            if later <= 0:
                return -1
            return self.window.follow(row, later if self.of_last else 1 + cython.cast(Int, uniform * later))
        earlier: Int = self.window.reach(row, -1)
        count = earlier + later + 1
        return -1 if count == 0 else self.window.follow(row, cython.cast(Int, uniform * count) - earlier)

    def steps(self, rows: GivenLongs, counts: GivenLongs, steps: LongTable) -> None:
        """Writes the rows of the transitions summed from each row on.

        Args:
            rows: int64[M].
            counts: int64[M], the number of transitions.
            steps: int64[M, n], written: -1 where there are fewer than n.
        """
        with cython.nogil:
            for index in range(rows.shape[0]):
                for step in range(steps.shape[1]):
                    steps[index, step] = self.window.follow(rows[index], step) if step < counts[index] else -1

    def find_next(self, acted: Longs, runs: GivenLongs, goals: Longs, reached: Longs) -> None:
        """Finds the rows with the achieved goals of transitions. A run that lacks one of them keeps its stored goal.

        Args:
            acted: int64[N], the rows whose rewards are shown, or -1; final rows, where no transition begins, become -1.
            runs: int64[N].
            goals: int64[R], changed to -1 where a reward cannot be computed.
            reached: int64[N], written: the row after each, or -1.
        """
        with cython.nogil:
            for index in range(acted.shape[0]):
                reached[index] = -1
                row: Int = acted[index]
                if row < 0:
                    continue
                if self.window.word(row) & FINAL:
                    acted[index] = -1
                    continue
                if goals[runs[index]] < 0:
                    continue
                after: Int = self.window.follow(row, 1)
                if after < 0 or (self.is_post and self.window.word(after) & FINAL):
                    goals[runs[index]] = -1
                else:
                    reached[index] = after
