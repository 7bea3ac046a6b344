"""server SS2: errors say what, where and whom: address, name, table, sizes, seconds waited, and the remedy."""

import re
import socket
import time

import numpy as np
import pytest

import headrace as hr

SIGNATURE = hr.Signature.like({"n": 0, "x": np.zeros(3, np.float32)})
FRAMES = hr.Signature.like({"f": np.zeros(70_000, np.uint8)})
RULES = [hr.ItemRule("q", 1)]


class Served:
    """Two replays and a queue behind a server with a token, and a client."""

    def __init__(self):
        uniform = hr.Table("u", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
        self.replay = hr.Replay(SIGNATURE, [hr.Table.queue("q", 2)], capacity=64)
        self.frames = hr.Replay(FRAMES, [uniform], capacity=64)
        self.queue = hr.BatchQueue({"n": 0}, 2, num_buffers=2)
        objects = {"r": self.replay, "frames": self.frames, "b": self.queue}
        limits = hr.server.Limits(payload_nbytes=1 << 20)
        self.server = hr.Server(objects, token="secret", limits=limits).start()
        self.address = self.server.address
        self.client = hr.Client(self.address, token="secret", timeout=5)

    def unknown_name(self):
        self.client.replay("other")

    def wrong_kind(self):
        self.client.replay("b")

    def unknown_table(self):
        self.client.replay("r").sample("z", 1, timeout=0)

    def nothing_to_draw(self):
        self.client.replay("r").sample("q", 2, timeout=0.05)

    def never_enough(self):
        self.client.replay("r").sample("q", 3, timeout=0.05)

    def items_that_wait(self):
        writer = self.client.replay("r").writer(items=RULES)
        for n in range(4):
            writer.append({"n": n, "x": np.zeros(3)})
        writer.flush(0.05)

    def wrong_shape(self):
        with self.client.replay("r").writer(items=RULES) as writer:
            writer.append({"n": 1, "x": np.zeros(4)})

    def wrong_token(self):
        hr.Client(self.address, token="guess", timeout=5)

    def missing_token(self):
        hr.Client(self.address, timeout=5)

    def other_schema(self):
        self.client.queue("b", example={"n": 0.5})

    def full_queue(self):
        self.samples_on_their_way().send({"n": 6}, timeout=0.05)

    def samples_on_their_way(self):
        """Returns the queue, which is full; as many samples as may be are on their way to it."""
        remote = self.client.queue("b", max_in_flight=2)
        for n in range(6):
            remote.send({"n": n}, timeout=20)
        return remote

    def samples_that_wait(self):
        self.samples_on_their_way().wait(0.25)

    def empty_queue(self):
        self.client.queue("b").sample(timeout=0.05)

    def large_batch(self):
        with self.frames.writer(items=[hr.ItemRule("u", 1)]) as writer:
            writer.append({"f": np.zeros(70_000, np.uint8)})
        self.client.replay("frames").sample("u", 100)

    def no_checkpoints(self):
        self.client.checkpoint()

    def silent_peer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            hr.Client(self.address, timeout=0.1)

    def nobody(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        hr.Client(self.address, timeout=1)

    def lost_server(self):
        writer = self.client.replay("r").writer(items=RULES)
        for n in range(4):
            writer.append({"n": n, "x": np.zeros(3)})
        assert writer.pending == 2  # So the server has all of them.
        self.server.stop(0)
        deadline = time.monotonic() + 20
        while writer._rows._stream.is_connected:  # Or its goodbye ends the call.
            assert time.monotonic() < deadline
            time.sleep(0.002)
        writer.flush(0.05)

    def close(self):
        self.client._session.abandon()
        self.server.stop(0)
        self.replay.close()
        self.frames.close()
        self.queue.close()


@pytest.fixture
def served():
    made = Served()
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:a writer was left")
@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        ("unknown_name", KeyError, ["ADDRESS", "'other'", "'r', 'frames', 'b'"]),
        ("wrong_kind", TypeError, ["ADDRESS", "'b'", "client.queue"]),
        ("unknown_table", KeyError, ["'z'", "'q'"]),
        ("nothing_to_draw", hr.DeadlineExceeded, ["'q'", "2 ", "SECONDS s"]),
        ("never_enough", ValueError, ["'q'", "3", "at most 2", "max_size=2"]),
        (
            "items_that_wait",
            hr.DeadlineExceeded,
            ["2 items", "'q'", "after SECONDS s", "sample from the table"],
        ),
        ("wrong_shape", hr.SpecError, ["x:", "float32[3]", "float64[4]"]),
        ("wrong_token", hr.AuthenticationError, ["ADDRESS", "token"]),
        ("missing_token", hr.AuthenticationError, ["ADDRESS", "pass token="]),
        ("other_schema", hr.SpecError, ["ADDRESS", "'b'", "n:", "float64[]", "int64[]"]),
        (
            "full_queue",
            hr.DeadlineExceeded,
            ["ADDRESS", "'b'", "2 samples", "SECONDS s", "Take batches faster"],
        ),
        (
            "samples_that_wait",
            hr.DeadlineExceeded,
            ["ADDRESS", "'b'", "2 samples", "within SECONDS s", "wait longer"],
        ),
        ("empty_queue", hr.DeadlineExceeded, ["batch of 2", "within SECONDS s", "0 samples wait"]),
        ("large_batch", ValueError, ["1048576 bytes", "100 items", "ask for fewer"]),
        ("no_checkpoints", hr.CheckpointError, ["checkpoint= of hr.Server"]),
        ("silent_peer", hr.DeadlineExceeded, ["ADDRESS", "handshake", "SECONDS s"]),
        ("nobody", hr.Disconnected, ["ADDRESS", "nobody listens"]),
        ("lost_server", hr.Disconnected, ["ADDRESS", "2 items", "'q'", "after SECONDS s"]),
    ],
)
def test_errors_say_what_where_and_whom(served, call, error, parts):
    with pytest.raises(error) as caught:
        getattr(served, call)()
    text = str(caught.value)
    for part in parts:
        pattern = re.escape(part).replace("ADDRESS", re.escape(served.address))
        # The time that it really waited, which is longer on a loaded machine.
        assert re.search(pattern.replace("SECONDS", r"\d+(\.\d+)?"), text), (pattern, text)
    # AU4, beside it
    assert not re.search("secret|guess", text)


def test_a_call_that_does_not_wait_tells_no_microseconds(served):
    """CL3: the text of the replay itself, which waited 0 s; the server may have taken some milliseconds."""
    texts = []
    for replay in (served.replay, served.client.replay("r")):
        with pytest.raises(hr.DeadlineExceeded) as caught:
            replay.sample("q", 1, timeout=0)
        texts.append(str(caught.value))
    assert "waited 0 s" in texts[0]
    seconds = re.search(r"waited (\S+) s", texts[1])
    assert seconds is not None
    assert re.fullmatch(r"\d+(\.\d{1,3})?", seconds[1])
    assert texts[1].replace(seconds[0], "waited 0 s") == texts[0]
