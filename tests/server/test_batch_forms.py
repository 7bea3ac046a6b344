"""Forms of small batches: described once for a connection, and checked by the client (WI6)."""

import numpy as np
import pytest

import headrace as hr
from headrace.leases.channel import Channel
from headrace.leases.frames import ProtocolError
from headrace.server.client import known_views
from headrace.server.client.answers.batch_form import BatchForm
from headrace.server.client.answers.batches import batch_of
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.messages.answers import AnyAnswer, PlacedArray, Sampled, SampledAgain
from headrace.server.messages.requests import AnyRequest, Ping
from headrace.server.serving.batches import batch_forms, sample_sources


@pytest.fixture
def replay():
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    with hr.Replay(hr.Signature.like({"n": 0, "x": np.zeros(3, np.float32)}), [table], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for n in range(50):
                writer.append({"n": n, "x": np.full(3, n)})
        yield replay


VIEWS = {"n": hr.View("n"), "x": hr.View("x", shift=[0, 1])}


def check(batch, size):
    assert batch["n"].shape == (size,)
    assert (batch["x"][:, 0] == batch["n"][:, None]).all()
    assert (batch["x"][:, 1] == batch["n"][:, None] + 1).all()
    assert len(batch.info.keys) == size


@pytest.mark.parametrize("most", [1, 3, 256])
def test_batches_of_many_forms_in_any_order(replay, monkeypatch, most):
    """More forms and sources than the server keeps are made again."""
    monkeypatch.setattr(batch_forms, "_MOST_FORMS", most)
    monkeypatch.setattr(sample_sources, "_MOST_SOURCES", most)
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        remote, kept = client.replay("r"), []
        for size in (1, 2, 3, 1, 5, 7, 2, 1, 3, 3, 3):
            batch = remote.sample("t", size, views=VIEWS)
            check(batch, size)
            kept.append((batch, batch["n"].copy()))
            batch["x"][:] = np.nan  # The caller's own.
            whole = remote.sample("t", size)
            assert (whole["x"] == whole["n"][:, None]).all()
        assert all((batch["n"] == numbers).all() for batch, numbers in kept)


KINDS = {"u1": np.uint8, "f2": np.float16, "b1": bool, "c8": np.complex64, "f4": np.float32, "c16": complex}
MIXED_VIEWS = {
    "u": hr.View("u1"),
    "pair": hr.View("f4", shift=[0, 1]),
    "b": hr.View("b1"),
    "e": hr.View("empty"),
}


@pytest.mark.parametrize("views", [None, MIXED_VIEWS], ids=["whole", "views"])
@pytest.mark.parametrize("is_unix", [True, False])
def test_arrays_of_any_size_and_dtype_are_aligned(tmp_path, is_unix, views):
    """CL3: as in process. An array with an odd number of bytes shifts none behind it."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=100)
    step = {name: np.zeros((), kind) for name, kind in KINDS.items()}
    step |= {"empty": np.zeros((0, 2)), "wide": np.zeros(5003, np.uint8)}
    address = {"address": None, "unix": tmp_path / "s"} if is_unix else {}
    with hr.Replay(hr.Signature.like(step), [table]) as replay, hr.Server({"r": replay}, **address) as server:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for n in range(40):
                writer.append({name: np.full_like(array, n % 2 or n) for name, array in step.items()})
        with hr.Client(server.address) as client:
            remote = client.replay("r")
            for size in (1, 2, 3, 5, 33, 1, 3):
                expected, batch = (
                    each.sample("t", size, views=views, timeout=20) for each in (replay, remote)
                )
                keys = batch.info.keys
                for found in (batch, remote.get("t", keys, views=views)):
                    assert found.info.keys.flags.aligned
                    assert (found.info.keys == keys).all()
                    for name, array in found.data.items():
                        assert array.flags.aligned, (size, name)
                        np.testing.assert_array_equal(array, expected.data[name])


def test_a_form_that_is_known_costs_few_bytes(replay):
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        remote.sample("t", 4, views=VIEWS)
        channel = client._session.link()._channel
        before = channel.bytes_in
        remote.sample("t", 4, views=VIEWS)
        data = 4 * (8 + 2 * 12) + 5 * 4 * 8
        assert data < channel.bytes_in - before < data + 80


@pytest.mark.parametrize("most", [1, 2, 256])
def test_views_that_the_caller_changed_are_those_of_the_next_batch(replay, monkeypatch, most):
    """Also those of a form that was built before, and those whose number stood for other views."""
    monkeypatch.setattr(known_views, "_MOST_VIEWS", most)
    views = dict(VIEWS)
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        for _ in range(3):
            check(remote.sample("t", 4, views=views), 4)
            check(remote.sample("t", 5, views=views), 5)
            views["x"] = hr.View("x", shift=[0, 1, 2])
            assert remote.sample("t", 4, views=views)["x"].shape == (4, 3, 3)
            assert remote.sample("t", 5, views=views)["x"].shape == (5, 3, 3)
            views["more"] = views.pop("x")
            assert list(remote.sample("t", 4, views=views).data) == ["n", "more"]
            del views["more"]
            views["x"] = VIEWS["x"]


def sampled(*places, form=0):
    return Sampled(
        number=1, names=None, arrays=list(places), has_mask=False, length=None, every=[], form=form
    )


@pytest.mark.parametrize(
    ("place", "nbytes"),
    [
        (PlacedArray("<i8", (2,), None, 8), 16),
        (PlacedArray("<i8", (2,), None, -8), 16),
        (PlacedArray("<i8", (-1,), None, 0), 16),
        (PlacedArray("<i8", (1 << 62, 1 << 62), None, 0), 16),
        (PlacedArray("<i8", (1,), None, 4), 16),
        (PlacedArray("<i8", (1,), 0, 0), 16),
        (PlacedArray("O", (1,), None, 0), 16),
        (PlacedArray("no dtype", (1,), None, 0), 16),
    ],
)
def test_a_form_outside_its_payload_is_refused(place, nbytes):
    form = BatchForm(sampled(place), nbytes)
    with pytest.raises((ValueError, TypeError)):
        form.arrays(bytes(nbytes))


NUMBERS = ("<u8", "<f8", "<i8", "<f8", "<i8")


def form_of(names, dtypes, shape=(2,), has_mask=False):
    """Returns a form of arrays of 8 bytes a number, one behind the other, and its payload."""
    nbytes = 8 * int(np.prod(shape))
    places = [PlacedArray(dtype, shape, None, number * nbytes) for number, dtype in enumerate(dtypes)]
    answer = Sampled(number=1, names=names, arrays=places, has_mask=has_mask, length=None, every=[], form=0)
    return BatchForm(answer, nbytes * len(places)), bytes(nbytes * len(places))


@pytest.mark.parametrize(
    ("names", "views", "form"),
    [
        (None, False, {"dtypes": ["<f8", *NUMBERS]}),  # Another dtype.
        (None, False, {"dtypes": ["<i8", *NUMBERS], "shape": (2, 2)}),  # Two axes more.
        (None, False, {"dtypes": ["<i8", "<i8", *NUMBERS]}),  # A column more.
        (None, False, {"dtypes": [*NUMBERS]}),
        (None, False, {"dtypes": ["<i8", *NUMBERS[:4]]}),
        (None, False, {"dtypes": []}),
        (None, False, {"dtypes": ["<i8", *NUMBERS[1:], "<u8"]}),  # In another order.
        (None, False, {"dtypes": ["<i8", *NUMBERS], "has_mask": True}),
        ([], True, {"dtypes": ["<i8", *NUMBERS]}),
        (None, True, {"dtypes": ["<i8", *NUMBERS]}),
        ([("n", ""), ("n", "leaf")], True, {"dtypes": ["<i8", *NUMBERS]}),
        ([("n", "leaf")], True, {"dtypes": ["<i8", *NUMBERS]}),
        ([("other", "leaf")], True, {"dtypes": ["<i8", *NUMBERS]}),
    ],
)
def test_a_form_that_is_not_a_batch_of_the_views_is_refused(names, views, form):
    signature = hr.Signature.like({"n": 0})
    found, payload = form_of(names, **form)
    for _ in range(2):
        reply = Reply(1, None)
        reply.form, reply.payload = found, payload
        with pytest.raises(ProtocolError, match="not a batch"):
            batch_of(reply, signature, {"n": hr.View("n")} if views else None)


def test_a_payload_of_another_length_is_refused():
    form = BatchForm(sampled(PlacedArray("<i8", (2,), None, 0)), 16)
    assert form.arrays(bytes(16))[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="expected 16 bytes, got 8"):
        form.arrays(bytes(8))


def test_a_form_that_was_not_described_ends_the_connection():
    near, far = Channel.pair(AnyAnswer)
    far.expect(AnyRequest, 1 << 20, 0)
    link = Link(near, "tcp://x:1", {}, MappedBlocks(may_map=False))
    reply = link.begin(Ping())
    far.send(SampledAgain(number=reply.number, form=3))
    with pytest.raises(hr.Disconnected, match="form 3, which it did not describe"):
        link.wait(reply, 5)
    link.close()
    far.close()
    assert issubclass(ProtocolError, hr.Disconnected)


@pytest.mark.parametrize(("count", "nbytes"), [(0, 0), (-1, 8), (1 << 60, 0), (65, 65 * 8), (3, 16)])
def test_several_batches_that_a_payload_cannot_hold_end_the_connection(count, nbytes):
    near, far = Channel.pair(AnyAnswer)
    far.expect(AnyRequest, 1 << 20, 0)
    link = Link(near, "tcp://x:1", {}, MappedBlocks(may_map=False))
    reply = link.begin(Ping())
    described = sampled(PlacedArray("<i8", (1,), None, 0))
    described.number = 0
    far.send(described, payload=bytes(8))
    far.send(SampledAgain(number=reply.number, form=0, count=count), payload=bytes(nbytes))
    with pytest.raises(hr.Disconnected, match=f"{count} batches in {nbytes} bytes"):
        link.wait(reply, 5)
    link.close()
    far.close()
