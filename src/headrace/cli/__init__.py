"""The command line: `headrace collect`, `doctor`, `export`, `inspect`, `play`, `serve`, `top`, `train`.

Exit codes: 0 done, 2 wrong use, 1 failed or interrupted.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import click

from headrace.errors import HeadraceError
from headrace.exiting import exit_within_a_second

# Each command is a folder, whose `__init__` has the options as `command`. Heavy modules are imported when a command
# runs, so that help and usage errors appear at once.
_COMMANDS = ("collect", "doctor", "export", "inspect", "play", "serve", "top", "train")
# In the `meta` of click's context: the arguments of the command line, as they were given.
ARGUMENTS = "headrace.arguments"


class _Commands(click.Group):
    """Imports commands by name, and turns errors that a user can act on into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"headrace.cli.{cmd_name}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Not sys.argv, which is that of another program if Python code calls `main(args)`.
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (HeadraceError, ImportError) as error:
            raise click.ClickException(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    # A private class says nothing to the user (test_service.py).
    name = next(each.__name__ for each in type(error).__mro__ if not each.__name__.startswith("_"))
    cause, text = error.__cause__, f"{name}: {error}"
    if cause is None or str(cause) in text or _is_named(cause, text):
        return text
    return f"{text} (caused by {type(cause).__name__}: {cause})"


def _is_named(cause: BaseException, text: str) -> bool:
    """Whether an optional library is missing that the text names."""
    return isinstance(cause, ModuleNotFoundError) and str(cause.name).replace("_", "-") in text


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace brings reinforcement-learning experience from environments to learners."""


def run(**options: Any) -> NoReturn:
    """Runs the command line as a program, which ends although an environment may have left threads.

    Args:
        **options: of click's `main`.
    """
    try:
        main(**options)
    except BaseException as end:
        exit_within_a_second(_exitcode(end), "this command")
        raise
    raise AssertionError("click ends with SystemExit")


def _exitcode(end: BaseException) -> int:
    """Returns the exit code that Python gives a process which ends by this exception."""
    if not isinstance(end, SystemExit):
        return 1
    code = 0 if end.code is None else end.code
    return code if isinstance(code, int) else 1
