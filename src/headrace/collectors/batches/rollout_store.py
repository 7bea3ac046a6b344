"""A store for rollouts that no replay keeps."""

from __future__ import annotations

from collections.abc import Callable

from headrace.spec import Signature
from headrace.store.layout import MAX_ROWS
from headrace.store.memory.arena import Arena
from headrace.store.store import Store

# A page holds a rollout. Two are leased for rows and three for final rows. The others are those of rollouts before,
# until they are copied out or the batches that show them are garbage, and those of the final rows of these.
_PAGES = 24


def rollout_store(
    signature: Signature, steps: int, num_envs: int, make_arena: Callable[[int], Arena]
) -> Store:
    """Returns a store whose pages hold one rollout each, and the observations after its last step.

    Raises:
        ValueError: the rollouts are too large.
    """
    page_rows = check_rollout_rows(steps, num_envs)
    return Store(signature, make_arena=make_arena, page_rows=page_rows, num_pages=_PAGES)


def check_rollout_rows(steps: int, num_envs: int) -> int:
    """Returns the rows of a page that holds a rollout.

    Raises:
        ValueError: the rollout is too large.
    """
    rows, most = (steps + 1) * num_envs, MAX_ROWS // _PAGES
    if rows > most:
        raise ValueError(
            f"frames_per_batch: expected rollouts of at most {most} rows, with the observations after the last step, "
            f"got {rows}"
        )
    return rows
