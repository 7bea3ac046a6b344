"""Forms of large batches, whose wide columns lie in blocks that the client maps (WI6, TR1)."""

from contextlib import contextmanager

import numpy as np
import pytest

import headrace as hr
from headrace.leases.channel import Channel
from headrace.leases.frames import ProtocolError
from headrace.server.client import link as link_module
from headrace.server.client.answers.batch_form import BatchForm, split_payload
from headrace.server.client.answers.batches import batch_of
from headrace.server.client.answers.placed_arrays import named_blocks
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.messages.answers import AnyAnswer, PlacedArray, Sampled, SampledAgain
from headrace.server.messages.requests import AnyRequest, Ping
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
    received = []

    def named(answer):
        if isinstance(answer, Sampled | SampledAgain):
            received.append(answer)
        return named_blocks(answer)

    monkeypatch.setattr(link_module, "named_blocks", named)
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


def received(answer, payload, sizes, form=None):
    """Returns the batch of an answer whose blocks have so many bytes, and its form."""
    reply = Reply(1, None)
    reply.form, reply.answer, reply.payload = form or BatchForm(answer, len(payload)), answer, payload
    reply.blocks = {number: np.zeros(sizes[number], np.uint8) for number in named_blocks(answer)}
    return batch_of(reply, SIGNATURE, {"0": hr.View("n")}), reply.form


@pytest.mark.parametrize(
    "place",
    [
        PlacedArray("<i8", (3,), 1, 0),
        PlacedArray("<i8", (1,), 1, -8),
        PlacedArray("<i8", (1,), 1, 4),
        PlacedArray("<i8", (1 << 62, 1 << 62), 1, 0),
        PlacedArray("O", (1,), 1, 0),
    ],
)
def test_a_form_outside_its_blocks_is_refused(place):
    with pytest.raises(ProtocolError, match="not a batch"):
        received(*form_of(place), {1: 16})


@pytest.mark.parametrize("blocks", [(), (1,), (1, 2, 3), (1, 1), (1, 3)])
def test_an_answer_with_other_blocks_than_its_form_is_refused(blocks):
    """Too few, too many, one twice, and one that is too small."""
    sizes = {1: 64, 2: 64, 3: 16}
    answer, payload = form_of(PlacedArray("<i8", (2,), 1, 8), PlacedArray("<i8", (2,), 2, 8))
    batch, form = received(answer, payload, sizes)
    assert list(batch.data) == ["0", "1"]
    again = SampledAgain(number=2, form=0, blocks=(2, 1))
    assert received(again, payload, sizes, form)[0]["1"].tolist() == [0, 0]
    with pytest.raises(ProtocolError, match="not a batch"):
        received(SampledAgain(number=3, form=0, blocks=blocks), payload, sizes, form)


def test_several_batches_in_the_same_blocks_are_refused():
    with pytest.raises(ProtocolError, match="2 batches in the same blocks"):
        split_payload(SampledAgain(number=1, form=0, count=2, blocks=(1,)), bytes(80))


@pytest.mark.parametrize("is_again", [False, True])
def test_blocks_that_were_not_granted_end_the_connection(is_again):
    """And with it the wait, whether the answer describes a form or names one."""
    near, far = Channel.pair(AnyAnswer)
    far.expect(AnyRequest, 1 << 20, 0)
    link = Link(near, "unix:///x", {}, MappedBlocks(may_map=True))
    reply = link.begin(Ping())
    if is_again:
        answer, payload = form_of()
        answer.number = 0
        far.send(answer, payload=payload)
        far.send(SampledAgain(number=reply.number, form=0, blocks=(7,)), payload=payload)
    else:
        answer, payload = form_of(PlacedArray("<i8", (2,), 7, 8))
        answer.number = reply.number
        far.send(answer, payload=payload)
    with pytest.raises(hr.Disconnected, match="block 7, which it did not grant"):
        link.wait(reply, 5)
    link.close()
    far.close()


# ---- answers that nobody reads ---------------------------------------------------------------------------------------


@pytest.fixture
def granted(monkeypatch):
    """Numbers of the blocks that clients map."""
    found, grant = [], MappedBlocks.grant

    def counted(blocks, numbers, sizes, descriptors):
        found.extend(numbers)
        grant(blocks, numbers, sizes, descriptors)

    monkeypatch.setattr(MappedBlocks, "grant", counted)
    return found


STACKS = {"n": hr.View("n"), "stack": hr.View("image", shift=[-1, 0])}


def test_loaders_that_end_give_back_the_blocks_of_batches_on_their_way(tmp_path, granted):
    with opened(tmp_path) as remote:
        for _ in range(40):
            with hr.loaders.Loader(remote, "t", 40, views=STACKS, prefetch=4) as loader:
                next(loader)
    # Blocks of one loader, and of answers to the loader before it that have not come yet.
    assert len(granted) <= 20


def test_an_answer_to_a_request_that_was_given_up_gives_back_its_block(tmp_path, granted):
    with opened(tmp_path) as remote:
        sampling = remote._sampling
        link = sampling.calls.link(20.0)
        for _ in range(20):
            request = sampling.request("t", 40, 20.0)
            [reply] = sampling.ask(request, sampling.key_of(STACKS), link)
            link.cancel(reply)
            remote.sample("t", 40, views=STACKS)  # Its answer comes behind the other one.
    assert len(granted) <= 4
