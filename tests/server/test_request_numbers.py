"""server WI3: a number under which a request waits already ends the connection; others are not held up."""

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.messages.operations import AppendSteps, CreateItem
from headrace.server.messages.requests import AwaitVersion, Ping, Sample, TakeBatch
from headrace.server.messages.writing import OpenWriter, WantKeys
from tests.server.hostile import SESSION, connected, said_to


@pytest.fixture
def served():
    replay = hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)])
    queue, weights = hr.BatchQueue({"n": 0}, 2), hr.server.Weights({"w": np.zeros(2)})
    with replay, queue, weights, hr.Server({"r": replay, "b": queue, "w": weights}) as server:
        yield replay, queue, weights, server


def sample(**changes):
    return Sample(**{"number": 7, "replay": "r", "table": "q", "batch_size": 1, "timeout": None, **changes})


@pytest.mark.parametrize(
    "messages",
    [
        [sample(), sample()],
        [sample(number=9), sample(count=3)],
        [TakeBatch(number=7, queue="b", timeout=None), TakeBatch(number=7, queue="b", timeout=5)],
        # The newest version is 0: a wait for another one is not answered.
        [AwaitVersion(number=7, weights="w", known=0), AwaitVersion(number=7, weights="w", known=0)],
    ],
)
def test_a_number_in_use_ends_the_connection(served, messages):
    """The first request was forgotten, and stayed at the head of the queue when its client had gone."""
    replay, queue, _, server = served
    said = said_to(server, SESSION + b"".join(map(encoded, messages)))
    assert b"expected one under which no request waits" in said
    with hr.Client(server.address) as client, replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        assert replay.statistics().tables["q"].waiting_samples == 0
        writer.append({"n": 3})
        assert client.replay("r").sample("q", 1, timeout=10)["n"].tolist() == [3]
        for n in range(2):
            queue.send({"n": n})
        batch, _ = client.queue("b").sample(timeout=10)
        assert batch["n"].tolist() == [0, 1]


def test_the_earlier_deadline_of_two_waits_comes_first(served):
    """CL5: also if the later one was asked for before."""
    *_, server = served
    waits = [TakeBatch(number=1, queue="b", timeout=60.0), TakeBatch(number=2, queue="b", timeout=0.05)]
    with connected(server) as peer:
        peer.settimeout(20)
        peer.sendall(SESSION + b"".join(map(encoded, waits)))
        found = b""
        while b"DeadlineExceeded" not in found:
            found += peer.recv(1 << 16)
    assert found.count(b"Failed") == 1
    assert b"number\x02" in found


def test_an_operation_that_comes_twice_is_applied_once(served):
    """AK3"""
    replay, *_, server = served
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=4, session=b"x" * 16)
    step = encoded(AppendSteps(writer=0, sequence=1, steps=1, version=0), bytes(8))
    item = encoded(CreateItem(writer=0, sequence=2, table="q", length=1, priority=1.0, lane=0, key=1))
    said = (
        SESSION
        + encoded(opening)
        + encoded(WantKeys(writer=0))
        + step * 2
        + item * 2
        + encoded(Ping(number=9))
    )
    assert b"Done" in said_to(server, said)
    assert replay.statistics().tables["q"].inserts == 1
