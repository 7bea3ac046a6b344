"""One turn of drawing, and what came of it.

A draw that waits for data waits in short turns, because nothing but its timeout ends a wait in somebody's `sample`. A
turn that ends takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.clock import Clock
from headrace.errors import Closed, DeadlineExceeded

Draw = Callable[[float], Any]
"""Gives a sample, or `DeadlineExceeded` after so many seconds."""

# Seconds of one turn; closing, saving a state and forking wait for the end of it at the longest.
TURN = 0.25


class Drawn:
    """A batch: as it was sampled, and converted if it was."""

    __slots__ = ("converted", "sample")

    def __init__(self, sample: Any) -> None:
        self.sample = sample
        self.converted: Any = None


class Outcome:
    """The outcome of a turn: a batch, a refusal, the end, an error, or a batch and an error that came after it."""

    __slots__ = ("drawn", "ended", "failure", "refusal")

    def __init__(self) -> None:
        self.drawn: Drawn | None = None
        self.refusal: DeadlineExceeded | None = None
        self.ended = False
        self.failure: BaseException | None = None

    def draw(self, draw: Draw, turn: float, clock: Clock) -> None:
        """Have `draw` give a sample within `turn` seconds; errors other than refusals and the end are raised.

        An error may also come from outside, as Ctrl-C does; what was drawn before stands here then.
        """
        begin = clock.monotonic()
        try:
            self.drawn = Drawn(draw(turn))
        except Closed:
            self.ended = True
        except DeadlineExceeded as error:
            if clock.monotonic() - begin < turn / 2:
                # It did not wait: somebody else's error, which would come again at once.
                raise
            self.refusal = error.with_traceback(None)
