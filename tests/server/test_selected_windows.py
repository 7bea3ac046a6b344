"""server WI3, CL7: windows that a client selects, and priorities that it gives, are checked before they are used."""

import time

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.replay.intake.selection import Selection
from headrace.server.messages.operations import AppendSteps, Given
from headrace.server.messages.writing import OpenWriter, RuleDescription
from headrace.tables.description.rules import PatternWindow, WholeEpisodes
from tests.server.hostile import SESSION, said_to

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
NAN = float("nan")


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def replay():
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=hr.selectors.Prioritized(), remover=fifo, max_size=99)
    with hr.Replay(SIGNATURE, [table], capacity=1000) as replay:
        yield replay


def opening(rule):
    return encoded(OpenWriter(writer=0, replay="r", lanes=1, rules=[rule], history=8, session=b"x" * 16))


def step(n, **given):
    message = AppendSteps(writer=0, sequence=n, steps=1, version=0, given=Given(**given))
    return encoded(message, np.int64(n).tobytes())


def check_serves_on(replay, server):
    with (
        hr.Client(server.address) as client,
        client.replay("r").writer(items=[hr.ItemRule("t", 2)]) as writer,
    ):
        for n in range(3):
            writer.append({"n": n})
    assert len(replay.table("t")) == 2
    replay.reset("t")
    # No page is held for items that were not made, when the writers are gone.
    until(lambda: replay.statistics().store.rows == 0)


@pytest.mark.parametrize(("length", "skip"), [(2, 0), (1, 1), (3, 4)])
def test_a_window_that_begins_before_its_episode_is_refused(replay, length, skip):
    """It ends at the first row, where the server looked for rows before the store."""
    rule = RuleDescription(kind="pattern", table="t", length=length, skip=skip, priority=1.0)
    with hr.Server({"r": replay}) as server:
        said = said_to(server, SESSION + opening(rule) + step(1, rows={0: b"\1"}) + step(2, rows={0: b"\0"}))
        assert f"expected {length + skip} rows of an episode".encode() in said
        assert len(replay.table("t")) == 0
        check_serves_on(replay, server)


def test_a_writer_of_this_process_raises_for_such_a_window(replay):
    writer = replay.row_writer(items=[PatternWindow("t", 2)])
    for n in range(3):
        writer.select_windows(Selection({0: np.array([n != 1])}, {}))
        if n:
            writer.append_checked({"n": np.int64(n)})
        else:
            with pytest.raises(ValueError, match="expected 2 rows of an episode"):
                writer.append_checked({"n": np.int64(n)})
    writer.close()
    assert replay.sample("t", 1).data["n"].tolist() == [1]


def test_too_few_priorities_are_refused(replay):
    rule = RuleDescription(kind="item", table="t", length=1, priority=1.0)
    with hr.Server({"r": replay}) as server:
        said = said_to(server, SESSION + opening(rule) + step(1, priorities={0: b""}))
        assert b"expected one for each of the 1 items, got 0" in said
        assert len(replay.table("t")) == 0
        check_serves_on(replay, server)


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "item", "length": 1, "priority": NAN},
        {"kind": "episode", "length": 4, "priority": NAN},
        {"kind": "pattern", "length": 1, "priority": -1.0},
        {"kind": "episode", "length": 0, "priority": 1.0},
        {"kind": "pattern", "length": 0, "priority": 1.0},
        {"kind": "pattern", "length": 3, "skip": -2, "priority": 1.0},
        {"kind": "pattern", "length": 3, "skip": 2**30, "priority": 1.0},
    ],
)
def test_rules_are_checked(replay, rule):
    """replay P1: a priority that is not a number would spoil the draws of all clients."""
    with hr.Server({"r": replay}) as server:
        said = said_to(server, SESSION + opening(RuleDescription(table="t", **rule)))
        assert b"Refused" in said
        assert b"ValueError" in said
        check_serves_on(replay, server)


def test_rules_of_this_process_are_checked_alike():
    for wrong in (
        lambda: PatternWindow("t", 0),
        lambda: PatternWindow("t", 1, -1),
        lambda: WholeEpisodes("t", 0),
    ):
        with pytest.raises(ValueError, match="expected length >= 1"):
            wrong()
