"""Terminals and the progress bar on them."""

import io
import os

import pytest

from headrace.terminal import ProgressBar, columns, is_terminal


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_files_and_missing_streams_are_no_terminals(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "log").open("w") as file:
        assert not is_terminal(file)
    assert not is_terminal(file)  # It is closed.
    assert not is_terminal(None)
    assert not is_terminal(object())
    assert is_terminal(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())


def test_the_width_is_that_of_the_stream(monkeypatch):
    fcntl, struct, termios = (pytest.importorskip(name) for name in ("fcntl", "struct", "termios"))
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal, open(os.devnull, "w") as nowhere:
        monkeypatch.setattr("sys.__stdout__", nowhere)  # As in `headrace collect ENV | less`.
        assert columns(terminal) == 80  # A terminal that has not been told its size says 0.
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 50, 0, 0))
        assert columns(terminal) == 50
        monkeypatch.setenv("COLUMNS", "30")
        assert columns(terminal) == 30
    assert columns(io.StringIO()) == 30


def test_the_bar_is_drawn_ten_times_a_second_at_most_and_when_all_is_done(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    now = [0.0]
    stream = Terminal()
    bar = ProgressBar(stream, 4, clock=lambda: now[0])
    for done, at in ((1, 0.0), (2, 0.09), (3, 0.11), (4, 0.12)):
        now[0] = at
        bar.show(done, f"<{done}>")
    drawn = [line.split()[-1] for line in stream.getvalue().split("\r")[1:]]
    assert drawn == ["<1>", "<3>", "<4>"]


def test_more_than_the_total_is_a_full_bar_and_no_total_is_no_bar():
    stream = Terminal()
    ProgressBar(stream, 2).show(5, "")
    ProgressBar(stream, None).show(5, "5 episodes")
    full, unknown = stream.getvalue().split("\r")[1:]
    assert full.split() == ["[####################]", "100%", "0:00:00"]
    assert unknown.split() == ["0:00:00", "5", "episodes"]


def test_a_line_is_cut_to_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    bar = ProgressBar(stream, 2)
    bar.show(1, "a long text " * 9)
    bar.erase()
    _, line, erased, cursor = stream.getvalue().split("\r")
    assert (len(line), erased, cursor) == (39, " " * 39, "")
