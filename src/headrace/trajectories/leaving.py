"""Leaving a writer's context by an exception."""

from __future__ import annotations


def note_failure(error: BaseException | None, cached: int, failure: Exception) -> None:
    """Adds to the user's exception that what it cut short could not be written either: it must not take its place.

    Args:
        error: what the context was left by.
        cached: steps of the unfinished episodes.
        failure: why they could not be written.
    """
    if error is not None:
        error.add_note(
            f"Leaving the writer, the ends of its unfinished episodes ({cached} steps) could not be written: "
            f"{type(failure).__name__}: {failure}"
        )
