"""Contests: sides that do the same work in turn, and the figure that comes of it (performance P1 to P3)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.pace import Pace

Run = Callable[[int], Any]
"""Does the work so many times, and returns what came of the last time."""

# Beyond this a limit that swings says so beside the figure (performance P1).
UNSTEADY = 0.15
# Below this share of its turn on a processor the limit, which never waits, was held up by others on the machine.
CROWDED = 0.9


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Args:
        rounds: in each of which every side has its turn.
        seconds: of one turn.
        divide: working sets are so many times smaller; above 1 only to see that a benchmark runs.
        peers: whether other libraries take part.
    """

    rounds: int = 5
    seconds: float = 0.15
    divide: int = 1
    peers: bool = False

    def size(self, full: int, least: int = 1) -> int:
        """A size of the full run, made smaller."""
        return max(least, full // self.divide)


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach: a value or a ratio to the limit, at least or at most."""

    least: float | None = None
    most: float | None = None
    ratio: float | None = None

    def is_reached(self, value: float, ratio: float | None) -> bool:
        if self.ratio is not None:
            return ratio is not None and ratio >= self.ratio
        return not (
            (self.least is not None and value < self.least) or (self.most is not None and value > self.most)
        )

    def __str__(self) -> str:
        if self.ratio is not None:
            return f">= {self.ratio:.2f} of limit"
        return f">= {short(self.least)}" if self.least is not None else f"<= {short(self.most)}"


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    @property
    def swing(self) -> float:
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass
class Row:
    """One figure, as it stands in the table and in the JSON lines.

    Attributes:
        value: ours, in `unit`.
        limit: the limit, in the same unit; `limit_name` says what it is.
        ratio: of the medians, above 1 where ours is the better.
        pace: of the machine beside ours' turns (`bench.pace`); None where it was not measured.
        at_pace: ours, each round divided by the pace: what a goal that is a rate is to be compared with.
        warm_up: seconds of preparing, and of the first call, which compiles and touches pages.
    """

    case: str
    unit: str
    value: Spread
    limit: Spread | None = None
    limit_name: str = ""
    ratio: float | None = None
    pace: Spread | None = None
    at_pace: Spread | None = None
    goal: Goal | None = None
    warm_up: dict[str, float] = field(default_factory=dict)
    peers: dict[str, Spread] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def is_reached(self) -> bool | None:
        return None if self.goal is None else self.goal.is_reached(self.value.median, self.ratio)

    @property
    def is_reached_at_pace(self) -> bool | None:
        """Whether a goal that is a rate is reached in proportion to the machine's pace; None for others."""
        if self.at_pace is None or self.goal is None or self.goal.least is None:
            return None
        return self.goal.is_reached(self.at_pace.median, None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "unit": self.unit,
            "value": vars(self.value),
            "limit": None if self.limit is None else {"name": self.limit_name, **vars(self.limit)},
            "ratio": self.ratio,
            "pace": None if self.pace is None else vars(self.pace),
            "at_pace": None if self.at_pace is None else vars(self.at_pace),
            "goal": None if self.goal is None else str(self.goal),
            "reached": self.is_reached,
            "reached_at_pace": self.is_reached_at_pace,
            "warm_up_seconds": self.warm_up,
            "peers": {name: vars(spread) for name, spread in self.peers.items()},
            "notes": self.notes,
        }


@dataclass
class Contest:
    """Sides that do the same logical work.

    Args:
        ours: our side.
        limit: the bare limit on the same work.
        limit_name: what it is, in a few words.
        peers: other libraries' sides.
        before: makes our side ready for a turn, outside the clock.
        verify: raises if what our side returned is wrong; called after every turn, outside the clock (performance P2).
        per_call: units of work in one call.
        unit: of the rates.
    """

    ours: Run
    limit: Run | None = None
    limit_name: str = ""
    peers: Mapping[str, Run] = field(default_factory=dict)
    before: Callable[[], None] | None = None
    verify: Callable[[Any], None] | None = None
    per_call: float = 1.0
    unit: str = "batches/s"


OURS, LIMIT = "ours", "limit"


def hold(contest: Contest, plan: Plan, pace: Callable[[], float] | None = None) -> Row:
    """Warm every side up, then let all have their turns, round after round. The row has no name and no goal yet.

    Args:
        pace: tells the machine's, before and after each turn of ours; None is a `Pace`.
    """
    pace = pace or Pace()
    sides: dict[str, Run] = {OURS: contest.ours}
    if contest.limit is not None:
        sides[LIMIT] = contest.limit
    sides.update(contest.peers)
    first_calls = {name: _timed(run, 1)[0] for name, run in sides.items()}
    counts = {name: _count_for(run, plan.seconds) for name, run in sides.items()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    shares: list[float] = []
    paces: list[float] = []
    for _ in range(plan.rounds):
        for name, run in sides.items():
            # First of all: what `before` makes ready must not go on while the pace is taken.
            pace_before = pace() if name == OURS else 0.0
            if name == OURS and contest.before is not None:
                contest.before()
            on_processor = time.thread_time()
            seconds, result = _timed(run, counts[name])
            if name == LIMIT:
                shares.append((time.thread_time() - on_processor) / seconds)
            rates[name].append(counts[name] * contest.per_call / seconds)
            if name == OURS:
                paces.append((pace_before + pace()) / 2)
            if name == OURS and contest.verify is not None:
                contest.verify(result)
    spreads = {name: Spread.of(values) for name, values in rates.items()}
    row = Row("", contest.unit, spreads.pop(OURS), spreads.pop(LIMIT, None), contest.limit_name)
    row.warm_up = {"first call": first_calls[OURS]}
    row.peers = spreads
    row.pace = Spread.of(paces)
    row.at_pace = Spread.of([rate / at for rate, at in zip(rates[OURS], paces, strict=True)])
    finish(row)
    if shares and statistics.median(shares) < CROWDED:
        row.notes.append(
            f"the limit had a processor for {statistics.median(shares):.0%} of its time: a busy machine"
        )
    return row


def finish(row: Row) -> None:
    """Put the ratio in, and say where the limit itself is unsteady."""
    if row.limit is None:
        return
    row.ratio = row.value.median / row.limit.median
    if row.limit.swing > UNSTEADY:
        row.notes.append(f"the limit swings by {row.limit.swing:.0%}")


def _timed(run: Run, count: int) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = run(count)
    return time.perf_counter() - begin, result


def _count_for(run: Run, seconds: float) -> int:
    """How many calls fill a turn."""
    count = 1
    while True:
        taken, _ = _timed(run, count)
        if taken >= seconds / 4 or count >= 1 << 24:
            return max(1, round(count * seconds / max(taken, 1e-9)))
        count *= 2 if taken > seconds / 64 else 8


def short(number: float | None) -> str:
    """A number in four characters or so: 250 k, 9.1 M, 0.84."""
    if number is None:
        return ""
    for bound, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= bound:
            return f"{number / bound:.3g}{letter}"
    return f"{number:.3g}"
