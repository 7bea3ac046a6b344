"""server WI3: a number under which a request waits already ends the connection; others are not held up."""

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.messages.requests import AwaitVersion, Sample, TakeBatch
from tests.server.hostile import SESSION, said_to


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
        [AwaitVersion(number=7, weights="w", known=9), AwaitVersion(number=7, weights="w", known=8)],
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
