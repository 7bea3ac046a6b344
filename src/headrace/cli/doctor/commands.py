"""Has the installation or an environment examined, and prints the findings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from headrace.cli.doctor.installation import examine_installation
from headrace.cli.doctor.journal import Outcome
from headrace.cli.doctor.report import Report
from headrace.cli.doctor.show import show

_SURVIVE = "Meanwhile hr.MultiCollector survives it: it starts the worker again."
_EXIT_FIX = "Raise an exception in place of os._exit(), or of exit() in a C library."
_KILL_FIX = "Look for os.kill in the environment, and whether the system was out of memory (dmesg)."
_CRASH_FIX = "C code of the environment has crashed; the lines on stderr say in which function of Python."


def run_on_installation(*, as_json: bool) -> None:
    """Examines the installation and prints the findings.

    Raises:
        click.exceptions.Exit: with code 1, if there is an error.
    """
    report = Report()
    examine_installation(report)
    show(None, report, {}, as_json=as_json)
    if report.count("error"):
        raise click.exceptions.Exit(1)


def run_on_environment(env_id: str, *, as_json: bool, **options: Any) -> None:
    """Examines an environment in a process of its own, and prints the findings.

    The environment may end that process at any step. So may a call that does not return, and threads that are left.

    Raises:
        click.BadParameter: there is no such environment.
        click.exceptions.Exit: with code 1, if there is an error.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-doctor-") as folder:
        exitcode = _run(folder, json.dumps({"env_id": env_id, **options}))
        outcome = Outcome.read(Path(folder))
    report, end = outcome.report, outcome.end
    if "refused" in end:
        raise click.BadParameter(end["refused"], param_hint=end["hint"])
    if not end:
        _report_end(report, exitcode)
    elif exitcode < 0 and "microseconds" in end:
        report.warn("exit", f"at its exit this process was ended by {_name(exitcode)}", _CRASH_FIX)
    if "failed" not in end:
        show(env_id, report, end.get("microseconds", {}), as_json=as_json)
    if "failed" in end or report.count("error"):
        raise click.exceptions.Exit(1)


def _run(*arguments: str) -> int:
    """Runs the child process; its output goes to stderr."""
    command = [sys.executable, "-m", "headrace.cli.doctor.child", *arguments]
    process = subprocess.Popen(command, stdout=_stderr())
    try:
        return process.wait()
    except BaseException:  # Ctrl-C
        process.kill()
        process.wait()
        raise


def _stderr() -> int:
    try:
        os.fstat(2)
    except OSError:  # It was closed.
        return subprocess.DEVNULL
    return 2


def _report_end(report: Report, exitcode: int) -> None:
    """Reports that the environment has ended the process of the examination."""
    after = f"after {report.calls} calls that had returned"
    if exitcode >= 0:
        report.error(
            "process",
            f"the environment has ended this process with exit code {exitcode}, {after}",
            f"{_EXIT_FIX} {_SURVIVE}",
        )
        return
    fix = _KILL_FIX if exitcode == -getattr(signal, "SIGKILL", 9) else _CRASH_FIX
    report.error("process", f"this process was ended by {_name(exitcode)}, {after}", f"{fix} {_SURVIVE}")


def _name(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"
