"""docs/command_line.md says what the commands say."""

import importlib.util
import re
from pathlib import Path

import click
import pytest

from headrace.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "build_tools" / "command_line_page.py"
    spec = importlib.util.spec_from_file_location("command_line_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_commands(tool):
    assert tool.PAGE.read_text() == tool.page(), "run python build_tools/command_line_page.py"


def test_each_command_has_its_options_and_an_example(tool):
    context = click.Context(main)
    sections = dict(
        re.findall(r"^## headrace (\w+)\n(.*?)(?=^## |\Z)", tool.page(), re.MULTILINE | re.DOTALL)
    )
    assert list(sections) == main.list_commands(context)
    for name, section in sections.items():
        example = re.search(r"```bash\n(.*?)```", section, re.DOTALL)[1]
        assert f"headrace {name}" in example
        for parameter in main.get_command(context, name).params:
            if isinstance(parameter, click.Option):
                assert f"<code>{parameter.opts[0]}" in section


def test_signs_of_markdown_are_shown_as_they_are(tool):
    assert tool._row("--to [a|b]", "x<=1, [*]\n  a|b") == (
        "| <code>--to [a&#124;b]</code> | x\\<=1, \\[\\*] a\\|b |\n"
    )
