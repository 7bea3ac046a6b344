"""Examines an environment or the installation, and prints the findings."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NoReturn

import click
import cloudpickle

from headrace.cli import environments, tables
from headrace.cli.doctor.agents import AgentsExamination
from headrace.cli.doctor.guard import HangWatch, look_for_threads, threads_left
from headrace.cli.doctor.installation import examine_installation
from headrace.cli.doctor.report import Level, Report, shown_error
from headrace.cli.doctor.single import CLOSE, SingleExamination, Stopped
from headrace.cli.doctor.tensors import ShownAsArrays
from headrace.cli.doctor.vector import VectorExamination
from headrace.cli.stdout_aside import StdoutAside
from headrace.cli.user_modules import import_module
from headrace.envs import AdaptedEnv, environment_factory, is_environment, is_vector_environment
from headrace.envs.make import on_device
from headrace.envs.recognition import is_dm_environment, is_parallel_environment

_MARKS = {"ok": "ok", "note": "note", "warning": "WARNING", "error": "ERROR"}


def run_on_installation(*, as_json: bool) -> None:
    """Examines the installation and prints the findings.

    Raises:
        click.exceptions.Exit: with code 1, if there is an error.
    """
    report = Report()
    examine_installation(report)
    _print(None, report, {}, as_json=as_json)
    if report.count("error"):
        raise click.exceptions.Exit(1)


def run_on_environment(
    env_id: str, *, steps: int, seed: int, env_device: str | None, timeout: float, as_json: bool
) -> None:
    """Examines an environment and prints the findings.

    A call that does not return within `timeout` seconds ends the process, and so do threads that the environment has
    left.

    Raises:
        click.BadParameter: there is no such environment.
        click.exceptions.Exit: with code 1, if there is an error.
    """
    build = factory_of(env_id)
    report = Report()
    before = threads_left()
    if not faulthandler.is_enabled():  # A crash in C code says at least where.
        faulthandler.enable(2)

    def end() -> None:
        aside.restore()
        _print(env_id, report, {}, as_json=as_json)
        _end_at_once(report)

    with StdoutAside() as aside, HangWatch(report, timeout, end), warnings.catch_warnings(action="ignore"):
        microseconds = examine(build, report, steps=steps, seed=seed, device=env_device)
    has_threads = look_for_threads(report, before)
    _print(env_id, report, microseconds, as_json=as_json)
    if has_threads:
        _end_at_once(report)
    if report.count("error"):
        raise click.exceptions.Exit(1)


def _end_at_once(report: Report) -> NoReturn:
    """Ends this process, whatever its threads do."""
    sys.stdout.flush()
    os._exit(bool(report.count("error")))


def factory_of(env_id: str) -> Callable[[], Any]:
    """Returns the callable that builds ENV.

    Raises:
        click.BadParameter: there is no such environment.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            found = getattr(import_module(module), name, None)
        except ImportError as error:
            raise click.BadParameter(f"{error}", param_hint="'ENV'") from error
        if callable(found):
            return found  # type: ignore[no-any-return]
        if found is not None:
            raise click.BadParameter(
                f"{name} of {module}: expected a callable that returns an environment, got {type(found).__name__}",
                param_hint="'ENV'",
            )
    try:
        return environment_factory(environments.spec(env_id).id)
    except click.BadParameter as error:
        if not module:
            raise
        raise click.BadParameter(
            f"the module {module} has no callable {name} and registers no environment of this id",
            param_hint="'ENV'",
        ) from error


def examine(
    build: Callable[[], Any], report: Report, *, steps: int, seed: int, device: str | None = None
) -> dict[str, float]:
    """Examines the environment that `build` returns; returns the mean times of its calls in microseconds.

    Args:
        build: the factory.
        report: gets the findings.
        steps: number of steps to take.
        seed: of resets.
        device: see `make_stepper`.
    """
    _check_pickling(build, report)
    if device is not None:
        build = on_device(build, device)
    try:
        env = build()
    except (Exception, SystemExit) as error:
        report.error("build", shown_error(error), "Call it in a Python shell to see the traceback.")
        return {}
    if not is_environment(env):
        report.error(
            "build",
            f"expected an environment of gymnasium, dm_env, PettingZoo (parallel) or EnvPool, got {type(env).__name__}",
            "Return the environment: def make(): return MyEnv()" if env is None else "Return an environment.",
        )
        return {}
    report.ok("build", f"{type(env).__name__}")
    examination = None
    try:
        examination = _examination(env, report, steps=steps, seed=seed, device=device)
        if isinstance(examination, SingleExamination):
            examination.run(lambda: ShownAsArrays(_as_single(build()), report, device))
        else:
            examination.run()
    except Stopped:
        report.note("rest", "not examined, because of the error above")
    except SystemExit as error:
        report.error(
            "exit", shown_error(error), "Raise an exception instead: sys.exit ends the program that collects."
        )
    _close(env, report)
    return {} if examination is None else examination.microseconds


def _examination(
    env: Any, report: Report, *, steps: int, seed: int, device: str | None
) -> SingleExamination | VectorExamination | AgentsExamination:
    if is_parallel_environment(env.env if isinstance(env, AdaptedEnv) else env):
        return AgentsExamination(env, report, steps=steps, seed=seed)
    if is_vector_environment(env):
        return VectorExamination(env, report, steps=steps, seed=seed, device=device)
    takes_seeds = not is_dm_environment(env)
    shown = ShownAsArrays(_as_single(env), report, device)
    return SingleExamination(shown, report, steps=steps, seed=seed, takes_seeds=takes_seeds)


def _as_single(env: Any) -> Any:
    """Returns an environment with the interface of gymnasium."""
    if isinstance(env, AdaptedEnv):
        env = env.env
    if is_dm_environment(env):
        from headrace.envs.adapters.dm_env_single import DmEnv

        return DmEnv(env)
    return env


def _check_pickling(build: Callable[[], Any], report: Report) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(build))
    except Exception as error:
        report.error(
            "pickling",
            f"cloudpickle cannot send the factory to a worker: {type(error).__name__}: {error}",
            "Open files, locks, connections and devices inside the factory, not outside of it.",
        )
    else:
        report.ok("pickling", "the factory can be sent to workers")


def _close(env: Any, report: Report) -> None:
    try:
        env.close()
        env.close()
    except Exception as error:
        report.warn("close", shown_error(error), CLOSE)
    else:
        report.ok("close", "works, also twice")


def _counted(report: Report, level: Level) -> str:
    count = report.count(level)
    return f"{count} {level}{'s' * (count != 1)}"


def _print(env_id: str | None, report: Report, microseconds: dict[str, float], *, as_json: bool) -> None:
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
