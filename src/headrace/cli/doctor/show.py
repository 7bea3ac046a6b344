"""Prints the findings of an examination."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import click

from headrace.cli import tables
from headrace.cli.doctor.report import Level, Report

_MARKS = {"ok": "ok", "note": "note", "warning": "WARNING", "error": "ERROR"}


def _counted(report: Report, level: Level) -> str:
    count = report.count(level)
    return f"{count} {level}{'s' * (count != 1)}"


def show(env_id: str | None, report: Report, microseconds: Mapping[str, float], *, as_json: bool) -> None:
    """Prints findings, of an environment or of the installation, and the mean times of calls."""
    findings = report.findings
    if as_json:
        result = {
            "environment": env_id,
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "microseconds": microseconds,
            "findings": [asdict(finding) for finding in findings],
        }
        click.echo(json.dumps(result))
        return
    counts = f"{_counted(report, 'error')}, {_counted(report, 'warning')}"
    speed = "; ".join(f"{name}: {value:.1f} us" for name, value in microseconds.items())
    tables.show(
        f"{env_id or 'installation'}: {counts}" + (f"; {speed}" if speed else ""),
        [(_MARKS[finding.level], finding.check, finding.text) for finding in findings],
    )
    for finding in findings:
        if finding.fix:
            tables.show(f"{finding.check}: what to do", [("", finding.fix)])
