"""Progress where there is no terminal."""

import io

import pytest
from rich.console import Console

from headrace.cli import screen


@pytest.fixture
def clock():
    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    return Clock()


def test_a_plain_line_after_two_seconds_and_then_every_ten(clock, capsys):
    with screen.ProgressLine(40, "episodes", clock=clock) as line:
        for done, now in ((1, 100.0), (2, 101.9), (3, 102.0), (4, 111.9), (5, 112.0)):
            clock.now = now
            line.show(done)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "3/40 episodes\n5/40 episodes\n")


def test_an_unknown_total_and_a_text(clock, capsys):
    with screen.ProgressLine(0, "frames", clock=clock) as line:
        clock.now = 103.0
        line.show(7, "12 frames/s")
    assert capsys.readouterr().err == "7 frames  12 frames/s\n"


def test_quiet_says_nothing(clock, capsys):
    with screen.ProgressLine(40, "frames", quiet=True, clock=clock) as line:
        clock.now = 200.0
        line.show(7)
    assert capsys.readouterr() == ("", "")


def test_a_title_is_whole_above_a_narrow_table():
    console = Console(file=io.StringIO(), width=80)
    screen.show(console, "a/path/that/is/longer/than/the/table [x]", screen.facts([("a", 1)]))
    assert console.file.getvalue().splitlines()[0] == "a/path/that/is/longer/than/the/table [x]"
