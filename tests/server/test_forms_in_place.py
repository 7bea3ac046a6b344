"""Forms of large batches, whose wide columns lie in blocks that the client maps (WI6, TR1)."""

from contextlib import contextmanager

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import ProtocolError
from headrace.server.client.batch_form import BatchForm, split_payload
from headrace.server.client.batches import batch_of
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.messages.answers import PlacedArray, Sampled, SampledAgain
from headrace.server.serving.batches import batch_arena
from headrace.system import has_sealed_memory

pytestmark = pytest.mark.skipif(not has_sealed_memory(), reason="needs sealed memory")
SIGNATURE = hr.Signature.like(
    {"n": 0, "image": np.zeros((64, 64), np.uint8), "sound": {"left": np.zeros(1500)}}
)
VIEWS = {
    "n": hr.View("n"),
    "image": hr.View("image"),
    "stack": hr.View("image", shift=[-1, 0]),
    "sound": hr.View("sound/left", shift=1),
}
# Batches whose images are copied one view after the other, and past the caches in one buffer.
SIZES = 40, 700


def step(n):
    image = np.full((64, 64), n % 251, np.uint8)
    image[0, :8] = np.frombuffer(np.int64(n).tobytes(), np.uint8)
    return {"n": n, "image": image, "sound": {"left": np.full(1500, n, np.float64)}}


def filled(seed=3):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    replay = hr.Replay(SIGNATURE, [table], seed=seed)
    with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
        for n in range(30):
            writer.append(step(n))
    return replay


@contextmanager
def opened(folder):
    with (
        filled() as replay,
        hr.Server({"r": replay}, address=None, unix=folder / "s") as server,
        hr.Client(server.address) as client,
    ):
        yield client.replay("r")


def same(found, expected):
    assert found.data.keys() == expected.data.keys()
    for name in found.data:
        path = "sound/left" if isinstance(found[name], dict) else name
        np.testing.assert_array_equal(found[path], expected[path])
    np.testing.assert_array_equal(found.info.keys, expected.info.keys)


@pytest.fixture
def answers(monkeypatch):
    """The answers with batches that clients receive."""
    received, settle = [], Link._settle

    def settled(link, number, answer, payload, form):
        if isinstance(answer, Sampled | SampledAgain):
            received.append(answer)
        settle(link, number, answer, payload, form)

    monkeypatch.setattr(Link, "_settle", settled)
    return received


@pytest.mark.parametrize("views", [VIEWS, None], ids=["views", "columns"])
def test_large_batches_are_described_once(tmp_path, answers, views):
    """And they are those of the same replay in process, also those that the learner keeps."""
    with opened(tmp_path) as remote, filled() as here:
        kept = []
        for _ in range(2):
            for size in SIZES:
                found, expected = remote.sample("t", size, views=views), here.sample("t", size, views=views)
                same(found, expected)
            small = remote.sample("t", 40, views=views), here.sample("t", 40, views=views)
            kept.append(small)
            for batch in small:
                batch["image"][:] = 255 - batch["image"]  # The learner's own.
        for found, expected in kept:
            same(found, expected)
    kinds = [type(answer) for answer in answers]
    assert kinds == [Sampled, Sampled, *[SampledAgain] * 4]
    blocks = [len(answer.blocks) for answer in answers[2:]]
    assert blocks == ([3, 3, 2, 3] if views else [2] * 4)


def test_batches_beyond_the_arena_are_sent(tmp_path, answers, monkeypatch):
    monkeypatch.setattr(batch_arena, "_MOST_NBYTES", 5 << 20)
    with opened(tmp_path) as remote, filled() as here:
        kept = [(remote.sample("t", 40, views=VIEWS), here.sample("t", 40, views=VIEWS)) for _ in range(12)]
        for found, expected in kept:
            same(found, expected)
    in_place = [isinstance(answer, SampledAgain) for answer in answers]
    assert any(in_place)
    assert not all(in_place[1:])


def test_arrays_at_other_places_of_blocks_are_described_again(tmp_path, answers, monkeypatch):
    begin = [0]

    def empty(arena, shape, dtype):
        return np.ndarray(shape, dtype, arena._free_buffer(1 << 21), begin[0])

    monkeypatch.setattr(batch_arena.BatchArena, "empty", empty)
    with opened(tmp_path) as remote, filled() as here:
        for begin[0] in (0, 0, 64, 64):
            same(remote.sample("t", 40, views=VIEWS), here.sample("t", 40, views=VIEWS))
    assert [type(answer) for answer in answers] == [Sampled, SampledAgain] * 2
    assert len({answer.form for answer in answers}) == 1


# ---- hostile servers -------------------------------------------------------------------------------------------------


class Blocks:
    """Blocks of so many bytes, by number."""

    def __init__(self, **nbytes):
        self._nbytes = {int(name[1:]): size for name, size in nbytes.items()}

    def array(self, number):
        if number not in self._nbytes:
            raise ProtocolError(f"block {number} was not granted")
        return np.zeros(self._nbytes[number], np.uint8)


def form_of(*places):
    """Returns a form of a batch of one item, and its payload: the numbers of the item."""
    numbers = [
        PlacedArray(dtype, (1,), None, 8 * index)
        for index, dtype in enumerate(("<u8", "<f8", "<i8", "<f8", "<i8"))
    ]
    names = [(str(index), "") for index in range(len(places))]
    answer = Sampled(
        number=1, names=names, arrays=[*places, *numbers], has_mask=False, length=None, every=[], form=0
    )
    return answer, bytes(40)


def received(answer, payload, blocks, form=None):
    reply = Reply(1, None)
    reply.form, reply.answer, reply.payload = form or BatchForm(answer, len(payload)), answer, payload
    return batch_of(reply, blocks, SIGNATURE, {"0": hr.View("n")}), reply.form


@pytest.mark.parametrize(
    "place",
    [
        PlacedArray("<i8", (3,), 1, 0),
        PlacedArray("<i8", (1,), 1, -8),
        PlacedArray("<i8", (1,), 1, 4),
        PlacedArray("<i8", (1 << 62, 1 << 62), 1, 0),
        PlacedArray("O", (1,), 1, 0),
        PlacedArray("<i8", (1,), 2, 0),
    ],
)
def test_a_form_outside_its_blocks_is_refused(place):
    with pytest.raises(ProtocolError, match="not a batch"):
        received(*form_of(place), Blocks(b1=16))


@pytest.mark.parametrize("blocks", [(), (1,), (1, 2, 3), (1, 7), (1, 3)])
def test_an_answer_with_other_blocks_than_its_form_is_refused(blocks):
    """Too few, too many, one that was not granted, and one that is too small."""
    mapped = Blocks(b1=64, b2=64, b3=16)
    answer, payload = form_of(PlacedArray("<i8", (2,), 1, 8), PlacedArray("<i8", (2,), 2, 8))
    batch, form = received(answer, payload, mapped)
    assert list(batch.data) == ["0", "1"]
    again = SampledAgain(number=2, form=0, blocks=(2, 1))
    assert received(again, payload, mapped, form)[0]["1"].tolist() == [0, 0]
    with pytest.raises(ProtocolError, match="not a batch"):
        received(SampledAgain(number=3, form=0, blocks=blocks), payload, mapped, form)


def test_several_batches_in_the_same_blocks_are_refused():
    with pytest.raises(ProtocolError, match="2 batches in the same blocks"):
        split_payload(SampledAgain(number=1, form=0, count=2, blocks=(1,)), bytes(80))


def test_blocks_of_an_answer_over_tcp_are_refused():
    answer, payload = form_of(PlacedArray("<i8", (2,), 1, 8))
    with pytest.raises(ProtocolError, match="did not grant"):
        received(answer, payload, MappedBlocks(may_map=False))
