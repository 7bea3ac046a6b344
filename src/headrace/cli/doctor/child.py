"""The process in which an environment is examined: `python -m headrace.cli.doctor.child FOLDER OPTIONS`."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli import environments
from headrace.cli.doctor.guard import HangWatch, look_for_threads
from headrace.cli.doctor.journal import Journal
from headrace.cli.doctor.run import examine
from headrace.cli.user_modules import import_module
from headrace.envs import environment_factory
from headrace.exiting import threads_left


def main() -> None:
    """Examines an environment, and leaves the findings in a folder."""
    journal = Journal(Path(sys.argv[1]))
    try:
        _examine(journal, **json.loads(sys.argv[2]))
    except click.BadParameter as error:
        journal.write(refused=error.message, hint=error.param_hint)
    except Exception:  # Of the examination itself.
        traceback.print_exc()
        journal.write(failed=True)


def _examine(
    journal: Journal, *, env_id: str, steps: int, seed: int, env_device: str | None, timeout: float
) -> None:
    if not faulthandler.is_enabled():  # A crash in C code says at least where.
        faulthandler.enable(2)
    build = factory_of(env_id)
    before = threads_left()

    def end() -> None:
        journal.write(hangs=True)
        os._exit(1)

    with HangWatch(journal, timeout, end), warnings.catch_warnings(action="ignore"):
        microseconds = examine(build, journal, steps=steps, seed=seed, device=env_device)
    has_threads = look_for_threads(journal, before)
    journal.write(microseconds=microseconds)
    if has_threads:
        sys.stdout.flush()
        os._exit(0)


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


if __name__ == "__main__":
    main()
