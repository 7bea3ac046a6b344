"""Errors of a full system: no memory to map, or no disk space for a growing file."""

from __future__ import annotations

from headrace.errors import StoreFull


def out_of_space(wanted: str, error: OSError | OverflowError) -> StoreFull:
    """Returns the error to raise, from `error`, when memory or the disk is full.

    Args:
        wanted: the amount and its purpose.
        error: of the system; OverflowError for more bytes than it can count.
    """
    reason = getattr(error, "strerror", None) or error
    return StoreFull(
        f"the store cannot grow: expected room for {wanted}, got {reason}. Nothing that was stored is "
        "lost. Free memory or disk space, give the store a smaller capacity or its tables a smaller max_size, or let "
        "items leave (max_times_sampled, delete); then go on"
    )


def stored_without_items(error: StoreFull, missing: int) -> StoreFull:
    """Returns the error of a stored step for which `missing` items could not be made."""
    refused = StoreFull(
        f"{error}. The step itself was stored: do not send it again. {missing} items of it were not made"
    )
    refused.__cause__ = error.__cause__
    return refused
