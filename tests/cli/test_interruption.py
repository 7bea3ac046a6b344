"""Ctrl-C while a command writes its files, and before."""

import signal

import pytest

from headrace.cli import interruption


def test_ctrl_c_while_files_are_written_is_answered_and_the_second_one_ends_it(capsys):
    steps = []

    def write():
        with interruption.finishing("writing"):
            signal.raise_signal(signal.SIGINT)
            steps.append("goes on")
            signal.raise_signal(signal.SIGINT)
            steps.append("never")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert steps == ["goes on"]
    assert capsys.readouterr().err == "writing; Ctrl-C again gives it up\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_without_ctrl_c_nothing_is_said(capsys):
    before = signal.getsignal(signal.SIGINT)
    with interruption.finishing("writing"):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().err == ""


def test_the_error_that_ended_a_run_is_raised_and_ctrl_c_gets_a_notice():
    interruption.raise_stop(None, "kept in x")
    with pytest.raises(OSError, match="unplugged"):
        interruption.raise_stop(OSError("unplugged"), "kept in x")
    with pytest.raises(interruption.Interrupted, match="kept in x"):
        interruption.raise_stop(KeyboardInterrupt(), "kept in x")
