"""Findings that outlive the process that has them: an environment may end it at any step."""

from __future__ import annotations

import json
import mmap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.cli.doctor.report import Finding, Level, Report

_CALLS_NBYTES = 8


class Journal(Report):
    """A report that is written to files of a folder as it grows.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[tuple[str, Level]] = []
        calls = folder / "calls"
        calls.write_bytes(bytes(_CALLS_NBYTES))
        with calls.open("r+b") as file:
            self._calls = mmap.mmap(file.fileno(), _CALLS_NBYTES)
        super().__init__()

    @property
    def calls(self) -> int:
        """Calls of the environment that have returned."""
        return int.from_bytes(self._calls[:], "little")

    @calls.setter
    def calls(self, calls: int) -> None:
        self._calls[:] = calls.to_bytes(_CALLS_NBYTES, "little")

    def ok(self, check: str, text: str) -> None:
        """See `Report.ok`."""
        super().ok(check, text)
        self._write_new()

    def _add(self, finding: Finding) -> None:
        super()._add(finding)
        self._write_new()

    def _write_new(self) -> None:
        """Writes the findings if there are new ones; how often each was made is written at the end."""
        levels = [(each.check, each.level) for each in self.findings]
        if levels != self._written:
            self._written = levels
            self.write()

    def write(self, **end: Any) -> None:
        """Writes the findings, and how the examination has ended."""
        findings = [asdict(finding) for finding in self.findings]
        new = self._folder / "new"
        new.write_text(json.dumps({"findings": findings, "end": end}), encoding="utf-8")
        new.replace(self._folder / "findings")


@dataclass
class Outcome:
    """The result of an examination, as its process has left it.

    Attributes:
        report: its findings.
        end: how the examination has ended, by name; empty: it has not.
    """

    report: Report = field(default_factory=Report)
    end: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Outcome:
        """Returns the outcome that a journal has left in a folder."""
        outcome = cls()
        found = folder / "findings"
        if found.exists():
            left = json.loads(found.read_text(encoding="utf-8"))
            outcome.report.take(Finding(**each) for each in left["findings"])
            outcome.end = left["end"]
        calls = folder / "calls"
        outcome.report.calls = int.from_bytes(calls.read_bytes(), "little") if calls.exists() else 0
        return outcome
