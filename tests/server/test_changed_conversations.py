"""server WI3, CL7, LP1: conversations of real clients with some values changed harm nobody but their own client."""

import logging
import os
import random
import struct
import time

import msgspec
import numpy as np
import pytest

import headrace as hr
from headrace.server.messages.requests import Cancel
from headrace.trajectories import PatternRule
from tests.server.hostile import SESSION, said_to
from tests.server.recorded import tapped

COUNT = int(os.environ.get("HEADRACE_CHANGED", "80"))
HEADER = struct.Struct("<4sIIQ")
STEP = {
    "observation": np.zeros(3, np.float32),
    "action": np.int64(0),
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
INTEGERS = (0, -1, 1, 2, 3, 64, 1024, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS = (0.0, -1.0, 1e308, float("inf"), float("nan"), 5e-324)
STRINGS = ("", "r", "t", "p", "q", "b", "w", "..", "observation", "reward", "float64", "PAD", "x" * 1000)
# Messages that none of the programs below sends.
OTHERS = [msgspec.msgpack.encode(Cancel(number=number)) for number in (3, 2**40)]


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# ---- real conversations ----------------------------------------------------------------------------------------------


def write(replay):
    none = np.zeros(2, bool)
    rules = [
        hr.NStepRule("t", n_step=2),
        hr.ItemRule("p", 2, stride=2, end=hr.EndOfEpisode.PAD, priority=2.0),
        hr.EpisodeRule("t", max_length=9),
    ]
    with hr.StepWriter(replay, rules, lanes=2, autoreset="next_step") as writer:
        writer.add_first(np.zeros((2, 3), np.float32))
        for call in range(6):
            ends = np.array([call == 2, call == 4])
            writer.add(np.zeros(2, int), np.ones(2), ends, none, np.full((2, 3), call, np.float32))
        writer.reset(False)
    pattern = PatternRule("t", {"o": ("observation", -2), "a": ("action", -2), "n": ("observation", -1)})
    with hr.StepWriter(replay, [pattern, hr.ItemRule("p", 1, priority=lambda rows: 3.0)]) as writer:
        writer.add_first(np.zeros(3, np.float32))
        for call in range(4):
            writer.add(call, 1.0, call == 3, False, np.zeros(3, np.float32))
    streams = [hr.ItemRule("t", 2, end=hr.EndOfEpisode.CONTINUE)]
    with replay.writer(items=streams, history=8) as writer:
        for _ in range(4):
            writer.append(STEP)
            writer.create_item("q", 1, 0.5)
        writer.end_episode()
        writer.append(STEP)
        replay.sample("q", 4, timeout=10)
        writer.flush(10)


def ask(client):
    replay = client.replay("r")
    for batch in (
        replay.sample("p", 3),
        replay.sample("t", 2, views={"o": hr.View("observation", shift=[-1, 0])}),
    ):
        keys = batch.info.keys
    replay.update_priorities("p", replay.sample("p", 2).info.keys, [1.0, 2.0])
    replay.get("t", keys[:1])
    for _ in replay.items("t", 3):
        pass
    replay.delete("t", keys)
    table = replay.table("t")
    table.statistics(), table.distribution(), table.peek(), replay.statistics(), replay.final_columns
    replay.can_sample("t", 2), replay.can_insert("t", 2)
    table.configure(max_size=100, rate_limiter=hr.rate_limiters.SampleToInsertRatio(1.0, 1, 1000.0))
    with pytest.raises(hr.DeadlineExceeded):
        replay.sample("q", 1, timeout=0.01)
    queue = client.queue("b")
    for number in range(5):
        queue.send({"n": number, "flag": True})
    queue.wait(10)
    queue.sample(timeout=10)
    queue.statistics(), client.ping(), client.statistics(), client.checkpoint()
    table.configure(rate_limiter=hr.rate_limiters.MinSize(1))
    replay.reset("t")


def frames_of(turns):
    """Returns the frames that a client said after the handshake: (message, payload)."""
    data = b"".join(said for side, said in turns if side == "client")
    frames, begin = [], 0
    while begin < len(data):
        _, length, _, nbytes = HEADER.unpack_from(data, begin)
        middle = begin + HEADER.size + length
        frames.append((data[begin + HEADER.size : middle], data[middle : middle + nbytes]))
        begin = middle + nbytes
    return frames[3:]


def conversations(target):
    """Returns the frames of real clients: those of each writer, and runs of the requests."""
    with tapped(target.server) as (address, connections):
        with hr.Client(address) as client:
            write(client.replay("r"))
            ask(client)
        receiver = target.weights.receiver(address, "w")
        receiver.read(), receiver.version
        receiver.close()
    found = []
    for frames in map(frames_of, connections):
        by_writer = {}
        for frame in frames:
            by_writer.setdefault(msgspec.msgpack.decode(frame[0]).get("writer"), []).append(frame)
        requests = by_writer.pop(None, [])
        found += by_writer.values()
        found += [requests[first : first + 10] for first in range(0, len(requests), 5)]
    return found


# ---- changes ---------------------------------------------------------------------------------------------------------


def changed_value(rng, value):
    if rng.random() < 0.1:
        return rng.choice([None, True, [], {}, "", b"", 0, 1.5, [1] * 1000])
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([value + 1, value - 1, -value, rng.choice(INTEGERS), rng.choice(INTEGERS)])
        case float():
            return rng.choice([*FLOATS, -value])
        case str():
            return rng.choice([*STRINGS, value + "x"])
        case bytes():
            number = struct.pack("<q", rng.choice([-1, 0, 1, 10**9, 2**62]))
            return rng.choice(
                [value[:-1], value[1:], value * 2, b"", b"\xff" * len(value), number + value[8:]]
            )
        case list():
            return rng.choice([value[:-1], value * 2, value[::-1], [*value, rng.choice(INTEGERS)]])
        case dict() if value:
            gone = rng.choice([*value])
            return {name: each for name, each in value.items() if name != gone}
    return rng.choice(INTEGERS)


def places(value, before=()):
    """Returns the place of each value in a message."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [] if not before or before == ("type",) else [before]
    for name, each in items:
        found += places(each, (*before, name))
    return found


def put(rng, value, place):
    """Returns a message with another value at a place."""
    if not place:
        return changed_value(rng, value)
    copy = dict(value) if isinstance(value, dict) else [*value]
    copy[place[0]] = put(rng, copy[place[0]], place[1:])
    return copy


def changed_frame(rng, frame):
    message, payload = frame
    if rng.random() < 0.2:
        return message, rng.choice(
            [payload[:-1], payload + b"\0", payload * 2, b"\xff" * len(payload), bytes(16)]
        )
    tree = msgspec.msgpack.decode(message)
    tree = put(rng, tree, rng.choice(places(tree)))
    return msgspec.msgpack.encode(tree), payload


def changed(rng, frames, every):
    """Returns a conversation with some frames changed, left out, repeated, exchanged, or from elsewhere."""
    frames, session = [*frames], rng.randbytes(16)
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(len(frames))
        match rng.choice(["change"] * 6 + ["drop", "repeat", "exchange", "insert", "other"]):
            case "change":
                frames[place] = changed_frame(rng, frames[place])
            case "drop":
                frames[place : place + 1] = []
            case "repeat":
                frames.insert(place, frames[place])
            case "exchange":
                other = rng.randrange(len(frames))
                frames[place], frames[other] = frames[other], frames[place]
            case "insert":
                frames.insert(place, rng.choice(rng.choice(every)))
            case "other":
                frames.insert(place, (rng.choice(OTHERS), b""))
        if not frames:
            break
    said = b""
    for message, payload in frames:
        tree = msgspec.msgpack.decode(message)
        if isinstance(tree.get("session"), bytes) and len(tree["session"]) == 16:
            message = msgspec.msgpack.encode(
                {**tree, "session": session}
            )  # Not that of an earlier conversation.
        said += HEADER.pack(b"hrl1", len(message), 0, len(payload)) + message + payload
    return said if rng.random() < 0.9 else said[: rng.randrange(len(said) + 1)]


# ---- the server ------------------------------------------------------------------------------------------------------


class Target:
    """A server in this process, and a client whose data must be right at all times."""

    def __init__(self, folder, *, on_disk):
        fifo, uniform = hr.selectors.Fifo(), hr.selectors.Uniform()
        prioritized = hr.selectors.Prioritized()
        self.tables = {
            "t": hr.Table("t", sampler=uniform, remover=fifo, max_size=100),
            "p": hr.Table("p", sampler=prioritized, remover=fifo, max_size=100),
            "q": hr.Table.queue("q", 20),
        }
        honest = hr.Table("honest", sampler=fifo, remover=fifo, max_size=1000, max_times_sampled=1)
        path = folder / "store" if on_disk else None
        self.replay = hr.Replay(
            hr.Signature.like(STEP), [*self.tables.values(), honest], capacity=20_000, seed=0, path=path
        )
        self.queue = hr.BatchQueue({"n": 0, "flag": False}, 2, num_buffers=8)
        self.own_queue = hr.BatchQueue({"n": 0}, 3)
        self.weights = hr.server.Weights({"w": np.zeros(4)})
        served = {"r": self.replay, "b": self.queue, "own": self.own_queue, "w": self.weights}
        self.server = hr.Server(served, checkpoint=folder / "checkpoints", keep=1).start()
        self.client = hr.Client(self.server.address)

    def check(self):
        """The other client works, and nothing of those that are gone is left."""
        until(lambda: self.server.statistics().connections <= 2)
        replay, queue = self.client.replay("r"), self.client.queue("own")
        with replay.writer(items=[hr.ItemRule("honest", 2)]) as writer:
            for number in range(3):
                writer.append({**STEP, "action": number})
        batch = replay.sample("honest", 2, timeout=10)
        assert batch.data["action"].tolist() == [[0, 1], [1, 2]]
        for number in range(3):
            queue.send({"n": number}, timeout=10)
        queue.wait(10)
        assert queue.sample(timeout=10)[0]["n"].tolist() == [0, 1, 2]
        for name, table in self.tables.items():
            self.replay.table(name).configure(max_size=table.max_size, rate_limiter=table.rate_limiter)
            self.replay.reset(name)
            assert self.replay.table(name).statistics().waiting_samples == 0, (
                "a client that is gone still waits"
            )
        until(lambda: self.replay.statistics().store.rows == 0)
        while self.queue.statistics().size >= 2:
            self.queue.sample(timeout=0)

    def close(self):
        self.client.close()
        self.server.stop(1.0)
        for each in (self.replay, self.queue, self.own_queue, self.weights):
            each.close()


@pytest.mark.timeout(max(120, COUNT))
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("seed", [0, 1])
def test_changed_conversations_harm_nobody_else(tmp_path, caplog, seed, on_disk):
    rng = random.Random(seed)
    target = Target(tmp_path, on_disk=on_disk)
    try:
        every = conversations(target)
        target.check()
        descriptors = len(os.listdir("/proc/self/fd"))
        with caplog.at_level(logging.ERROR, "headrace"):
            for number in range(COUNT):
                said_to(target.server, SESSION + changed(rng, rng.choice(every), every))
                if number % 20 == 19:
                    target.check()
            target.check()
        assert not caplog.records, caplog.text
        until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    finally:
        target.close()
