"""Findings of an examination."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name.
        level: "error": collectors refuse the environment, or would store wrong steps; "warning": it can be used, and
            something is probably not meant so; "note": not a fault.
        text: what was seen.
        fix: what to change, with an example; empty where there is nothing to change.
    """

    check: str
    level: Level
    text: str
    fix: str = ""


def shown_error(error: BaseException) -> str:
    """Returns an exception of the user's code with the line that raised it.

    >>> def step():
    ...     raise OSError("no simulator")
    >>> try:
    ...     step()
    ... except OSError as error:
    ...     print(shown_error(error))  # doctest: +ELLIPSIS
    OSError: no simulator, raised in step (...:2)
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = (
        f", raised in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
        if frames
        else ""
    )
    return f"{type(error).__name__}: {error}{place}"


class Report:
    """Findings by check. The first finding of a check stays; later ones of the same check are counted.

    >>> report = Report()
    >>> report.warn("bounds", "step 1: 3.0 is above 2.0")
    >>> report.warn("bounds", "step 2: 4.0 is above 2.0")
    >>> report.ok("bounds", "inside"), report.ok("reward", "finite")
    (None, None)
    >>> [(finding.check, finding.level, finding.text) for finding in report.findings]
    [('bounds', 'warning', 'step 1: 3.0 is above 2.0 (2 times)'), ('reward', 'ok', 'finite')]

    Attributes:
        calls: of the environment, that have returned.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._first: dict[str, Finding] = {}
        self._times: dict[str, int] = {}

    def error(self, check: str, text: str, fix: str = "") -> None:
        """Adds an error. It takes the place of warnings of the same check."""
        if check in self._first and self._first[check].level != "error":
            del self._first[check], self._times[check]
        self._add(Finding(check, "error", text, fix))

    def warn(self, check: str, text: str, fix: str = "") -> None:
        """Adds a warning."""
        self._add(Finding(check, "warning", text, fix))

    def note(self, check: str, text: str, fix: str = "") -> None:
        """Adds a note."""
        self._add(Finding(check, "note", text, fix))

    def ok(self, check: str, text: str) -> None:
        """Says that a check found nothing, unless it found something before."""
        self._first.setdefault(check, Finding(check, "ok", text))
        self._times.setdefault(check, 1)

    def _add(self, finding: Finding) -> None:
        self._first.setdefault(finding.check, finding)
        self._times[finding.check] = self._times.get(finding.check, 0) + 1

    def take(self, findings: Iterable[Finding]) -> None:
        """Replaces the findings by those of another process."""
        self._first = {finding.check: finding for finding in findings}
        self._times = dict.fromkeys(self._first, 1)

    def __contains__(self, check: object) -> bool:
        return check in self._first

    @property
    def findings(self) -> list[Finding]:
        """The findings, in the order of their checks."""
        return [self._with_times(finding) for finding in self._first.values()]

    def _with_times(self, finding: Finding) -> Finding:
        times = self._times[finding.check]
        text = f"{finding.text} ({times} times)" if times > 1 else finding.text
        return Finding(finding.check, finding.level, text, finding.fix)

    def count(self, level: Level) -> int:
        """Returns the number of checks whose finding is of this level."""
        return sum(finding.level == level for finding in self._first.values())
