"""How a loader draws: by the replay's `sample`, or by a replay's own stream of batches."""

# Rules: loaders LD1

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Query:
    """The arguments of each call of `sample`.

    Attributes:
        table: name of the table.
        batch_size: items in a batch.
        views: as for `sample`.
    """

    table: str
    batch_size: int
    views: Mapping[str, Any] | None


class Draws(Protocol):
    """Batches in the order of their draws. One thread at a time calls it."""

    def draw(self, timeout: float, ahead: int) -> Any:
        """Returns the next batch.

        Args:
            timeout: seconds to wait for the rate limiter.
            ahead: number of further batches that may be drawn before they are asked for.

        Raises:
            DeadlineExceeded: the rate limiter did not open in time; nothing was taken.
            Exception: see `Replay.sample`.
        """

    def stop(self) -> list[Any]:
        """Returns the batches that were drawn before they were asked for; none is drawn until the next `draw`."""


class _Calls:
    """Draws each batch by a call of `sample`.

    Args:
        replay: of the batches.
        query: the arguments.
    """

    def __init__(self, replay: Any, query: Query) -> None:
        self._replay, self._query = replay, query

    def draw(self, timeout: float, ahead: int) -> Any:  # noqa: ARG002 - one after the other
        """See `Draws.draw`."""
        query = self._query
        return self._replay.sample(query.table, query.batch_size, views=query.views, timeout=timeout)

    def stop(self) -> list[Any]:
        """See `Draws.stop`."""
        return []


def draws_of(replay: Any, query: Query) -> Draws:
    """Returns the draws of a replay.

    A client's replay has a stream of its own (`draws_ahead`), with several requests on their way. A wrapper or subclass
    that changes `sample` is asked by its `sample`.
    """
    if "sample" not in getattr(replay, "__dict__", {}):
        for each in type(replay).__mro__:
            if "draws_ahead" in vars(each):
                draws: Draws = replay.draws_ahead(query.table, query.batch_size, views=query.views)
                return draws
            if "sample" in vars(each):
                break
    return _Calls(replay, query)
