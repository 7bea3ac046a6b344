"""The command line: `headrace collect`, `export`, `inspect`, `train`. One file a command, loaded when it is named.

Exit codes: 0 done, 2 wrong use, 1 failed.
"""

from __future__ import annotations

import importlib

import click

from headrace.errors import HeadraceError

# Name of the command: the module whose `command` it is. The modules import what is heavy inside their functions, so
# that help and wrong use are answered at once.
_COMMANDS = {
    "collect": "headrace.cli.collect",
    "export": "headrace.cli.export",
    "inspect": "headrace.cli.inspect",
    "train": "headrace.cli.train",
}


class _Commands(click.Group):
    """Finds commands by name, and turns errors that a user can act on into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (HeadraceError, ImportError) as error:
            raise click.ClickException(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    cause, text = error.__cause__, f"{type(error).__name__}: {error}"
    return (
        text if cause is None or str(cause) in text else f"{text} (caused by {type(cause).__name__}: {cause})"
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace brings reinforcement-learning experience from environments to learners."""
