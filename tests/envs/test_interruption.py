"""Ctrl-C held back: what a block costs."""

from __future__ import annotations

import signal
import sys
from typing import Any

from headrace.envs.interruption import Uninterrupted


def test_a_block_of_the_main_thread_makes_no_enums() -> None:
    """`signal.signal` makes an enum of each handler, which costs more than a call of a small pool."""
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    block = Uninterrupted()
    sys.setprofile(note)
    try:
        with block:
            pass
    finally:
        sys.setprofile(None)
    assert "Uninterrupted.__enter__" in called
    assert len(called) <= 4, called


def test_the_handler_of_before_is_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Uninterrupted():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
