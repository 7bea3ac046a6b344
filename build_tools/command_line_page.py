"""Writes docs/command_line.md from the options of the commands; `python build_tools/command_line_page.py`.

A test compares the page with the commands, so the two cannot differ.
"""

from __future__ import annotations

import html
import inspect
from pathlib import Path

import click

from headrace.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "command_line.md"
_BEGIN = """\
# The command line

Train a policy, watch it act, keep its episodes, and look at them:

```bash
headrace train CartPole-v1
headrace play out/CartPole-v1-0/policy.pt
headrace collect CartPole-v1 --steps 10000 --policy out/CartPole-v1-0/policy.pt --out out/expert
headrace inspect out/expert
```

Each command explains itself with `--help`. Results go to standard output, progress and warnings to standard error. The
exit code is 0 when the command is done, 2 for wrong use, and 1 when it failed or was interrupted. `python -m headrace`
is the same as `headrace`.

| command | purpose |
|---|---|
"""
# Click keeps the lines of a paragraph that begins so; in the help of the commands these are the examples.
_EXAMPLES = "\b"


def page() -> str:
    """Returns the text of the page: one section for each command, with its options and examples."""
    # With the settings of the group: click keeps the help option that the first context makes.
    with click.Context(main, info_name="headrace", **main.context_settings) as context:
        names = main.list_commands(context)
        commands = [main.get_command(context, name) for name in names]
        found = [
            (name, command) for name, command in zip(names, commands, strict=True) if command is not None
        ]
        index = [f"| [{name}](#headrace-{name}) | {_purpose(command)} |\n" for name, command in found]
        return _BEGIN + "".join(index) + "".join(_section(name, command, context) for name, command in found)


def _purpose(command: click.Command) -> str:
    return _cell(_help(command)[0].split("\n\n")[0])


def _section(name: str, command: click.Command, parent: click.Context) -> str:
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        records = [option.get_help_record(context) for option in options]
    rows = [_row(*record) for record in records if record is not None]
    text, examples = _help(command)
    return (
        f"\n## headrace {name}\n\n```text\n{usage}\n```\n\n{_escaped(text)}\n\n```bash\n{examples}\n```\n\n"
        "| option | meaning |\n|---|---|\n" + "".join(rows)
    )


def _help(command: click.Command) -> tuple[str, str]:
    """Returns the paragraphs of the help, and its examples, one on a line."""
    text, _, examples = inspect.cleandoc(command.help or "").partition(_EXAMPLES)
    return text.strip(), "\n".join(line.strip() for line in examples.strip().splitlines())


def _row(option: str, meaning: str) -> str:
    # Markdown has no sign for a bar in code that all readers of tables understand.
    shown = html.escape(option.replace(" RANGE", "")).replace("|", "&#124;")
    return f"| <code>{shown}</code> | {_cell(meaning)} |\n"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Returns plain text in which brackets and stars are no markup."""
    for sign in "[<*":
        text = text.replace(sign, "\\" + sign)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
