"""Examines an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from headrace.cli.doctor.agents import AgentsExamination
from headrace.cli.doctor.report import Report, shown_error
from headrace.cli.doctor.single import CLOSE, SingleExamination, Stopped
from headrace.cli.doctor.tensors import ShownAsArrays
from headrace.cli.doctor.vector import VectorExamination
from headrace.envs import AdaptedEnv, is_environment, is_vector_environment
from headrace.envs.make import on_device
from headrace.envs.recognition import is_dm_environment, is_parallel_environment


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
