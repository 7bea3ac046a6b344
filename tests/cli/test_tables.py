"""Tables on standard output: columns, wide characters, widths of terminals, and nothing that steers one."""

import contextlib
import io

import click
import pytest

from headrace.cli import tables


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    """Shows a table on a terminal of 40 columns, and returns what it gets."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show(*arguments):
        with contextlib.redirect_stdout(Terminal()) as terminal:
            tables.show(*arguments)
        return terminal.getvalue()

    return show


def test_names_and_values(capsys):
    tables.show("a/path/that/is/longer/than/the/table [x]", [("a", 1), ("long name", None), ("c", 0.5)])
    assert capsys.readouterr().out == (
        "a/path/that/is/longer/than/the/table [x]\n"
        "  a          1\n"
        "  long name  -\n"
        "  c          0.50\n"
    )  # fmt: skip


def test_under_a_header_numbers_are_aligned_right(capsys):
    tables.show("t", [("x", 1, "end"), ("long", 1000, "")], header=("name", "n", "how"))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  name     n  how",
        "  x        1  end",
        "  long  1000",
    ]


def test_a_header_without_rows(capsys):
    tables.show("t", [], header=("name", "n"))
    assert capsys.readouterr().out == "t\n  name  n\n"


def test_mean_least_and_greatest(capsys):
    spread = {"mean": 2.0, "min": 1, "max": None}
    tables.show_spreads("t", {"return": spread})
    assert capsys.readouterr().out.splitlines()[1:] == [
        "          mean  min  max",
        "  return  2.00    1    -",
    ]


def test_wide_and_combining_characters_keep_the_columns(capsys):
    tables.show("t", [("\u4e16\u754c", "wide"), ("e\u0301te", "three"), ("four", "plain")])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  \u4e16\u754c  wide",
        "  e\u0301te   three",
        "  four  plain",
    ]


def test_elsewhere_than_on_a_terminal_nothing_is_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    tables.show("t", [("a", "word " * 100)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_on_a_terminal_long_cells_are_wrapped_at_spaces(on_terminal):
    shown = on_terminal("t", [("a", "12345678 " * 9), ("b", "x" * 50), ("\u4e16", "\u4e16" * 20)])
    assert click.unstyle(shown).splitlines()[1:] == [
        "  a   12345678 12345678 12345678",
        "      12345678 12345678 12345678",
        "      12345678 12345678 12345678",
        "  b   " + "x" * 34,
        "      " + "x" * 16,
        "  \u4e16  " + "\u4e16" * 17,
        "      " + "\u4e16" * 3,
    ]


def test_a_terminal_too_narrow_for_any_table_ends_nothing(on_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    assert click.unstyle(on_terminal("t", [("abc", "\u4e16\u4e16")])).split() == [
        "t",
        "ab",
        "\u4e16",
        "c",
        "\u4e16",
    ]


def test_titles_and_names_are_styled_unless_the_user_wants_none(on_terminal, monkeypatch):
    assert on_terminal("t", [("a", 1)]) == "\x1b[3mt\x1b[0m\n  \x1b[1ma\x1b[0m  1\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_terminal("t", [("a", 1)]) == "t\n  a  1\n"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert on_terminal("t", [("a", 1)]) == "t\n  a  1\n"


def test_nothing_in_a_cell_steers_the_terminal(on_terminal):
    shown = on_terminal("\x1b]0;title\x07", [("[bold]\x1b[2J", "a\rb\tc\udcff"), ("d", "two\nlines")])
    assert click.unstyle(shown) == (
        "\\x1b]0;title\\x07\n"
        "  [bold]\\x1b[2J  a\\rb\\tc\\udcff\n"
        "  d              two\n"
        "                 lines\n"
    )  # fmt: skip
