"""Columns that a loss reads, and views without those that nothing reads."""

# Rules: views D1 to D3

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.batches.sample_batch import SampleBatch
from headrace.batches.tracking import tracked
from headrace.checks import check_kind
from headrace.views.dummy import dummy_batch
from headrace.views.view import View, check_views

BatchFunction = Callable[[Any], Any]
KEPT = frozenset({"reward", "terminated", "truncated"})
"""Columns that are never discarded."""


def columns_read(fn: BatchFunction | Iterable[BatchFunction], batch: SampleBatch) -> frozenset[str]:
    """Runs functions on copies of a batch, and returns the columns whose given values they read.

    Reads are `b["x"]`, also of a path below it, `get`, `pop`, `items()`, `values()`, `dict(b)` and `b.data["x"]`, of
    the batch, or of a copy, slice or concatenation of it. Names, lengths and `"x" in b` are not reads. A column that
    the function itself wrote is not the given one any more. Pytree functions and `rows()` read all columns.

    Args:
        fn: a function of a batch, or several; each gets a deep copy.
        batch: never changed.

    Raises:
        Exception: as a function raised it, with a note that it was run to see which columns it reads.
        TypeError: `fn` is not a function, or `batch` not a `SampleBatch`.

    >>> batch = SampleBatch({"observation": [1, 2], "action": [0, 1], "reward": [1.0, 2.0]})
    >>> sorted(columns_read(lambda b: b["observation"] * b[1:]["reward"] if "action" in b else 0, batch))
    ['observation', 'reward']
    """
    check_kind("batch", batch, SampleBatch)
    found: set[str] = set()
    for function in _functions(fn):
        copied, reads = tracked(batch)
        try:
            function(copied)
        except Exception as error:
            error.add_note(
                "hr.views.columns_read ran this function on a copy of a batch to see which columns it reads"
            )
            raise
        found |= reads
    return frozenset(found)


def prune(
    views: Mapping[str, View],
    fns: BatchFunction | Iterable[BatchFunction],
    batch: SampleBatch | None = None,
) -> dict[str, View]:
    """Returns views in which those that no function reads have `used_for_training=False`.

    Views named reward, terminated and truncated stay as they are. A view is read when its mask is.

    Args:
        views: maps names to views; not changed.
        fns: a function of a batch, such as a loss, or several.
        batch: rows of the views; None makes rows of random numbers (`dummy_batch`).

    Raises:
        Exception: as a function raised it, with a note.
        TypeError: `views` is not a dict of views.

    >>> prune({"observation": View(), "action": View(shift=-1)}, lambda batch: batch["observation"])
    {'observation': View(), 'action': View(shift=-1, used_for_training=False)}
    """
    check_views(views)
    read = columns_read(fns, dummy_batch(views) if batch is None else batch) | KEPT
    return {
        name: view if {name, f"{name}_mask"} & read else view.replace(used_for_training=False)
        for name, view in views.items()
    }


def _functions(fns: BatchFunction | Iterable[BatchFunction]) -> list[BatchFunction]:
    functions = [fns] if callable(fns) or not isinstance(fns, Iterable) else list(fns)
    for function in functions:
        if not callable(function):
            raise TypeError(f"fn: expected a function of a batch, or several, got {function!r}")
    return functions
