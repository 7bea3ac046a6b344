"""Batches of a queue that lie in their messages (`SmallQueueBatch`), and the bound beyond which they do not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.server.client.queues.small_batches import SmallBatches
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.spec import Signature

BOUND = 4096
DTYPES = ["bool", "int8", "uint16", "int32", "float16", "float64", "complex64"]
LEAVES = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=6
)


@pytest.fixture(params=["tcp", "unix"])
def where(request, tmp_path):
    return {} if request.param == "tcp" else {"address": None, "unix": tmp_path / "s"}


@given(LEAVES, st.integers(0, 5), st.integers(0, 2**32))
def test_leaves_are_read_as_they_were_joined(leaves, rows, seed):
    signature = Signature.like({f"{n}": np.zeros(shape, dtype) for n, (dtype, shape) in enumerate(leaves)})
    random = np.random.default_rng(seed)
    values = [random.integers(0, 2, (rows, *shape)).astype(dtype) for dtype, shape in leaves]
    data = bytearray(b"".join(each.tobytes() for each in values))
    found = SmallBatches(signature).arrays(rows, data)
    for array, value in zip(found, values, strict=True):
        assert array.dtype == value.dtype
        assert array.flags.writeable
        assert array.flags.aligned
        np.testing.assert_array_equal(array, value)


@pytest.mark.parametrize(("rows", "nbytes"), [(-1, 0), (0, 6), (1, 0), (1, 5), (2, 6), (1 << 62, 6)])
def test_another_length_is_refused(rows, nbytes):
    batches = SmallBatches(Signature.like({"a": np.zeros(2, np.uint8), "b": np.int32(0)}))
    with pytest.raises(ValueError, match=f"expected {rows} samples of 6 bytes, got {nbytes} bytes"):
        batches.arrays(rows, bytearray(nbytes))


@pytest.mark.parametrize(("nbytes", "count"), [(8, 1), (BOUND, 1), (BOUND // 2, 2), (BOUND + 1, 1)])
def test_small_batches_lie_in_their_messages(where, monkeypatch, nbytes, count):
    """CL3, with no description of arrays for a small batch, nor a payload behind it."""
    described = []
    send_batch = BatchSender.send_batch
    monkeypatch.setattr(BatchSender, "send_batch", lambda *args: described.append(1) or send_batch(*args))
    queue = hr.BatchQueue(np.zeros(nbytes, np.uint8), count)
    with hr.Server({"q": queue}, **where) as server, hr.Client(server.addresses[0]) as client:
        remote = client.queue("q")
        found = []
        for first in (1, 101):
            for number in range(first, first + count):
                remote.send(np.full(nbytes, number, np.uint8))
            found.append(remote.sample(10)[0])
    assert len(described) == (2 if nbytes * count > BOUND else 0)
    for first, batch in zip((1, 101), found, strict=True):
        assert batch.flags.writeable
        assert batch.shape == (count, nbytes)
        np.testing.assert_array_equal(batch, np.arange(first, first + count)[:, None] + np.zeros(nbytes, int))
        batch[:] = 0  # The caller's own: the other batch is not changed.


def test_batches_of_nothing_are_small(where):
    """BQ1: a zero-length leaf is allowed, also as the only one."""
    queue = hr.BatchQueue(np.zeros((0, 2), np.float32), 3)
    with hr.Server({"q": queue}, **where) as server, hr.Client(server.addresses[0]) as client:
        remote = client.queue("q")
        for _ in range(3):
            remote.send(np.zeros((0, 2), np.float32))
        assert remote.sample(10)[0].shape == (3, 0, 2)
