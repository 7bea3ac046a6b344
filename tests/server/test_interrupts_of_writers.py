"""Ctrl-C at every moment of a call of a client's writer: what it did is at the server once, or not at all."""

import itertools
import logging
import time

import numpy as np
import pytest
from interrupts import Interrupt

import headrace as hr
from headrace.replay.public import core_of

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
FIFO = hr.selectors.Fifo()


class Served:
    """A replay behind a server, its client, and a writer of rising numbers.

    Attributes:
        returned: the numbers of the steps whose calls returned.
    """

    def __init__(self, **options):
        tables = [hr.Table(name, sampler=FIFO, remover=FIFO, max_size=1000) for name in ("steps", "items")]
        self.local = hr.Replay(SIGNATURE, tables, capacity=2000)
        self.server = hr.Server({"r": self.local}, **options).start()
        self.client = hr.Client(self.server.address, timeout=20)
        self.writer = self.client.replay("r").writer(items=[hr.ItemRule("steps", 1)], history=50)
        self.count, self.returned, self.keys = 0, [], []

    def append(self):
        self.count += 1
        self.writer.append({"n": self.count})
        self.returned.append(self.count)

    def create(self):
        self.keys.append(self.writer.create_item("items", 1))

    def numbers(self, table):
        """The steps of the items in a table, the oldest first, and their keys."""
        core = core_of(self.local)
        ring = core.live_table(table).ring
        slots = ring._live_slots()
        rows = ring.arrays.rows[slots].astype(np.int64)
        return core.store.columns["n"][rows].tolist(), ring.arrays.keys[slots].tolist()

    def close(self):
        self.writer.close(timeout=20)
        self.client.close()
        self.server.stop()
        self.local.close()


def collected_append(served):
    """The steps before it are in flight, or wait for the server's answer."""
    for _ in range(3):
        served.append()


CALLS = {
    "append": Served.append,
    "collected": collected_append,
    "create_item": Served.create,
    "end_episode": lambda served: served.writer.end_episode(),
    "flush": lambda served: served.writer.flush(timeout=20),
    "pending": lambda served: served.writer.pending,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("is_unix", [True, False], ids=["unix", "tcp"])
def test_every_operation_is_applied_once(call, is_unix, tmp_path, caplog):
    """server AK3, AK4, CL5: no number is missing, and the server asks for none again."""
    options = {"address": None, "unix": str(tmp_path / "socket")} if is_unix else {}
    served = Served(**options)
    caplog.set_level(logging.INFO, logger="headrace")
    for number in itertools.count(1):
        for _ in range(2):
            served.append()
            served.create()
        try:
            with Interrupt(number, folder="server/client/writers"):
                call(served)
        except KeyboardInterrupt:
            pass
        else:
            break
        served.append()
        served.create()
        served.writer.flush(timeout=20)
        steps, _ = served.numbers("steps")
        items, keys = served.numbers("items")
        assert (np.diff(steps) > 0).all()  # Once each, and in order.
        assert set(served.returned[-700:]) <= set(steps)
        assert (np.diff(items) >= 0).all()
        assert len(set(keys)) == len(keys)
        assert set(served.keys[-700:]) <= set(keys)
    assert number > 6, "there are moments to try"
    assert not caplog.records, "the connection was made again"
    served.close()


@pytest.mark.parametrize("call", ["append", "collected", "end_episode"])
def test_the_client_knows_how_many_rows_an_episode_has(call, caplog):
    """replay I1: the longest window is made, a longer one is refused, whether the interrupted call has sent or not."""
    served = Served()
    caplog.set_level(logging.INFO, logger="headrace")
    for number in itertools.count(1):
        first = served.count + 1
        for _ in range(2):
            served.append()
        try:
            with Interrupt(number, folder="server/client/writers"):
                CALLS[call](served)
        except KeyboardInterrupt:
            pass
        else:
            break
        served.writer.flush(timeout=20)
        steps = [step for step in served.numbers("steps")[0] if step >= first]
        [is_open] = served.writer._rows.open_lanes
        assert is_open or call == "end_episode"
        served.writer.create_item("items", len(steps))
        with pytest.raises(ValueError, match="length"):
            served.writer.create_item("items", len(steps) + 1)
        served.writer.flush(timeout=20)
        assert served.numbers("items")[0][-1] == first
        if is_open:
            served.writer.end_episode()
    assert number > 6, "there are moments to try"
    assert not caplog.records, "the connection was made again"
    served.close()


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("call", ["close", "abandon"])
@pytest.mark.parametrize("is_unix", [True, False], ids=["unix", "tcp"])
def test_a_writer_whose_close_was_interrupted_does_not_stay_open_at_the_server(
    call, is_unix, tmp_path, caplog
):
    """server LP1: its pages are free. A writer of which the server has heard twice would end the connection."""
    options = {"address": None, "unix": str(tmp_path / "socket")} if is_unix else {}
    served = Served(**options)
    served.writer.close()
    caplog.set_level(logging.INFO, logger="headrace")
    open_writers = core_of(served.local).writers._writers
    for number in itertools.count(1):
        served.writer = served.client.replay("r").writer(items=[hr.ItemRule("steps", 1)])
        served.append()
        served.writer.flush(timeout=20)
        rows = served.writer._rows
        try:
            with Interrupt(number, folder="server/client/writers"):
                getattr(rows, call)()
        except KeyboardInterrupt:
            if not rows._closed:
                rows.close(timeout=20)
        else:
            break
        until(lambda: not open_writers)
    assert number > 2, "there are moments to try"
    assert not caplog.records, "the connection was made again"
    served.close()
