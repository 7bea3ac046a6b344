"""The error of a system that has no room: for memory that is to be mapped, for a file that is to grow."""

from __future__ import annotations

from headrace.errors import StoreFull


def no_room(wanted: str, error: OSError) -> StoreFull:
    """What is raised, from `error`, where memory or the disk has no room for what a store needs next.

    Args:
        wanted: how much, and for what.
        error: of the system.
    """
    return StoreFull(
        f"the store cannot grow: expected room for {wanted}, got {error.strerror or error}. Nothing that was stored is "
        "lost. Free memory or disk space, give the store a smaller capacity or its tables a smaller max_size, or let "
        "items leave (max_times_sampled, delete); then go on"
    )


def stored_without_items(error: StoreFull, missing: int) -> StoreFull:
    """The error of a step that is stored, of which so many items found no room."""
    told = StoreFull(
        f"{error}. The step itself was stored: do not send it again. {missing} items of it were not made"
    )
    told.__cause__ = error.__cause__
    return told
