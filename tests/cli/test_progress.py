"""Progress of commands: a bar on a terminal, plain lines elsewhere, on standard error."""

import contextlib
import io

import pytest

from headrace.cli.progress import ProgressLine


@pytest.fixture
def clock():
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_plain_line_after_two_seconds_and_then_every_ten(clock, capsys):
    with ProgressLine(40, "episodes", clock=clock) as line:
        for done, now in ((1, 100.0), (2, 101.9), (3, 102.0), (4, 111.9), (5, 112.0)):
            clock.now = now
            line.show(done)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "3/40 episodes\n5/40 episodes\n")


def test_an_unknown_total_and_a_text(clock, capsys):
    with ProgressLine(0, "frames", clock=clock) as line:
        clock.now = 103.0
        line.show(7, "12 frames/s")
    assert capsys.readouterr().err == "7 frames  12 frames/s\n"


def test_quiet_says_nothing(clock, capsys):
    with ProgressLine(40, "frames", quiet=True, clock=clock) as line:
        clock.now = 200.0
        line.show(7)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def test_on_a_terminal_a_bar_that_is_erased_at_the_end(clock, terminal, capsys):
    with contextlib.redirect_stderr(terminal), ProgressLine(40, "frames", clock=clock) as line:
        clock.now = 103.0
        line.show(10)
        clock.now = 104.0
        line.show(20, "loss [0.5]")
    first, count, text, erased, cursor = terminal.getvalue().split("\r")[1:]
    assert first.split() == ["[--------------------]", "0%", "0:00:00"]
    assert count.split() == ["[#####---------------]", "25%", "0:00:03", "10/40", "frames"]
    assert text.split() == ["[##########----------]", "50%", "0:00:04", "loss", "[0.5]"]
    assert (erased.strip(), cursor) == ("", "")
    assert {len(each) for each in (first, count, text, erased)} == {59}
    assert capsys.readouterr().out == ""


def test_a_quiet_command_draws_nothing_on_a_terminal(clock, terminal):
    with contextlib.redirect_stderr(terminal), ProgressLine(40, "frames", quiet=True, clock=clock) as line:
        line.show(7)
    assert terminal.getvalue() == ""


def test_a_dumb_terminal_gets_plain_lines(clock, terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stderr(terminal), ProgressLine(40, "frames", clock=clock) as line:
        clock.now = 103.0
        line.show(7)
    assert terminal.getvalue() == "7/40 frames\n"


def test_a_warning_is_not_printed_behind_the_bar(clock, terminal):
    with contextlib.redirect_stderr(terminal), ProgressLine(40, "episodes", clock=clock) as line:
        line.show(7)
        line.warn("too wide")
    assert terminal.getvalue().split("\r")[3].strip() == "Warning: too wide"
