"""server WI2, WI3, WI6, LP4, CL3: columns that travel compressed are the same columns, and hostile ones are refused."""

import logging
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.frames import Frame, ProtocolError, encoded
from headrace.server.compression import packing, zstd
from headrace.server.compression.choice import CompressedColumns, compressed_columns
from headrace.server.compression.packing import PayloadPacker
from headrace.server.compression.unpacking import PayloadUnpacker
from headrace.server.messages.packed import Packed
from headrace.server.messages.requests import Ping, SendSamples
from headrace.server.serving.batches.batch_answers import column_paths
from tests.server.hostile import SESSION, said_to

if not zstd.is_installed():
    pytest.skip("needs headrace[zstd]", allow_module_level=True)

FRAME = np.arange(84 * 84, dtype=np.int64).astype(np.uint8).reshape(84, 84)
STEP = {"frame": np.zeros((84, 84), np.uint8), "noise": np.zeros(600, np.float64), "reward": np.float32(0)}


def step(number):
    noise = np.random.default_rng(number).random(600)
    return {"frame": np.roll(FRAME, number), "noise": noise, "reward": np.float32(number)}


@contextmanager
def served(compression, *, replay=None, queue=None, **server):
    """Yields a server and a client of it."""
    objects = {"r": replay} if queue is None else {"q": queue}
    with hr.Server(objects, **server) as server, hr.Client(server.address, compression=compression) as client:
        yield server, client


def bytes_of(server, client):
    """Returns the bytes that the server has received and sent."""
    client.ping()  # The server counts what it has sent before it reads on.
    found = server.statistics()
    return found.bytes_in, found.bytes_out


def written_and_read(compression, *, batch_size=16, views=None):
    """Returns a batch of steps that were written and drawn over TCP, and the bytes in and out."""
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 100)], capacity=200) as replay:
        with served(compression, replay=replay) as (server, client):
            remote = client.replay("r")
            with remote.writer(items=[hr.ItemRule("t", 1)]) as writer:
                for number in range(batch_size):
                    writer.append(step(number))
                writer.flush()
            batch = remote.sample("t", batch_size, views=views)
            return batch, bytes_of(server, client)


# ---- both directions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd", {"frame": "zstd"}, {"/": "zstd"}])
def test_compressed_steps_and_batches_are_the_same(compression):
    """LP4: nothing but speed differs"""
    batch, _ = written_and_read(compression)
    for number in range(16):
        for name, value in step(number).items():
            assert batch[name][number].tobytes() == value.tobytes()
    batch["frame"][:] = 1  # The caller's own memory.


def test_only_chosen_columns_that_shrink_are_smaller_on_the_wire():
    _, plain = written_and_read(None)
    frames = 16 * 84 * 84
    for compression in ("zstd", {"frame": "zstd"}):
        _, packed = written_and_read(compression)
        for raw, stored in zip(plain, packed, strict=True):
            assert frames * 0.9 < raw - stored < frames
    _, packed = written_and_read({"noise": "zstd"})
    assert packed[0] == pytest.approx(plain[0], abs=500)


def test_views_are_compressed_by_the_stored_column():
    views = {"shown": hr.View(data_col="frame"), "reward": hr.View()}
    batch, plain = written_and_read(None, views=views)
    again, packed = written_and_read({"frame": "zstd"}, views=views)
    assert (batch["shown"] == again["shown"]).all()
    assert plain[1] - packed[1] > 16 * 84 * 84 * 0.9


def test_masks_are_not_columns():
    """WI3: their names follow from those that a client chooses, and a connection keeps something for columns only."""
    views = {"frame": hr.View(mask=True)}
    signature = hr.Signature.like(STEP)
    names = [("frame", ""), ("frame_mask", "")]
    assert column_paths(names, 4, signature, views) == ["frame", None, None, None]
    assert column_paths(None, 5, signature, None) == ["frame", "noise", "reward", None, None]


def test_samples_of_a_queue_are_compressed_in_both_directions():
    """BQ2"""
    sizes = {}
    for compression in (None, "zstd"):
        with hr.BatchQueue(STEP, 4, num_buffers=4) as queue:
            with served(compression, queue=queue) as (server, client):
                remote = client.queue("q")
                for number in range(8):
                    remote.send(step(number))
                remote.wait(10)
                for first in (0, 4):
                    batch, _ = remote.sample(timeout=10)
                    for place in range(4):
                        for name, value in step(first + place).items():
                            assert batch[name][place].tobytes() == value.tobytes()
                sizes[compression] = bytes_of(server, client)
    for raw, stored in zip(sizes[None], sizes["zstd"], strict=True):
        assert raw - stored > 8 * 84 * 84 * 0.9


def test_small_batches_of_several_columns_are_compressed_apart():
    """Their arrays lie in one buffer, of which parts are compressed; several batches come in one message."""
    like = {"a": np.zeros(32, np.int32), "b": np.zeros(32, np.float32), "c": np.int64(0)}
    with hr.Replay(hr.Signature.like(like), [hr.Table.queue("t", 1000)], capacity=2000) as replay:
        with replay.writer(lanes=64, items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(8):
                noise = np.random.default_rng(number).random((64, 32), np.float32)
                writer.append({"a": np.full((64, 32), number), "b": noise, "c": np.arange(64)})
        expected = list(replay.items("t", 64))
        with served({"a": "zstd"}, replay=replay) as (server, client):
            draws = client.replay("r").draws_ahead("t", 64)
            before = bytes_of(server, client)[1]
            for place, one in enumerate(expected):
                other = draws.draw(5.0, 7 - place)
                for name in like:
                    assert (one[name] == other[name]).all()
            assert bytes_of(server, client)[1] - before < 8 * 64 * (32 * 4 + 8 + 64)
            draws.stop()


@pytest.mark.parametrize("unix", [False, True])
def test_peeks_items_and_priorities_are_those_of_the_replay(unix, tmp_path):
    """CL3; over a Unix socket nothing is compressed."""
    where = {"address": None, "unix": tmp_path / "s"} if unix else {}
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 100)], capacity=200) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(4):
                writer.append(step(number))
        with served("zstd", replay=replay, **where) as (_, client):
            remote = client.replay("r")
            assert (client._session.link().packer is None) == unix
            [batch] = remote.items("t", 4)
            assert (batch["frame"] == [step(number)["frame"] for number in range(4)]).all()
            assert remote.table("t").peek()["frame"].shape == (1, 84, 84)


def test_ends_of_episodes_and_final_rows_travel_behind_compressed_steps():
    """LP4"""
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 100)], capacity=200) as replay:
        with (
            served("zstd", replay=replay) as (_, client),
            client.replay("r").writer(items=[hr.ItemRule("t", 2)]) as writer,
        ):
            writer.append(step(1))
            writer.end_episode({"frame": np.roll(FRAME, 2)})
            writer.append(step(3))
            writer.end_episode({"frame": np.roll(FRAME, 4)})
            writer.flush()
            batch = replay.sample("t", 2)
    shown = np.stack([[np.roll(FRAME, 1), np.roll(FRAME, 2)], [np.roll(FRAME, 3), np.roll(FRAME, 4)]])
    assert (batch["frame"] == shown).all()


# ---- peers without it ------------------------------------------------------------------------------------------------


def test_a_server_without_zstd_takes_columns_as_they_are(monkeypatch, caplog):
    monkeypatch.setattr("headrace.server.serving.connection.zstd.is_installed", lambda: False)
    with caplog.at_level(logging.WARNING, "headrace"):
        batch, sizes = written_and_read("zstd")
    assert (batch["frame"][3] == step(3)["frame"]).all()
    assert min(sizes) > 16 * 84 * 84
    [record] = caplog.records
    assert "does not compress" in record.message
    assert "headrace[zstd]" in record.message


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


@pytest.mark.parametrize("first", [True, False])
def test_what_is_sent_again_travels_as_the_second_server_takes_it(monkeypatch, first):
    """AK3, LP3: rows in reach and samples go to a server that has zstd, or has it no more, as their first did not."""

    def serve(has_zstd, address):
        monkeypatch.setattr("headrace.server.serving.connection.zstd.is_installed", lambda: has_zstd)
        return hr.Server({"r": replay, "q": queue}, address=address)

    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 100)], capacity=200) as replay:
        with hr.BatchQueue(STEP, 4) as queue:
            server = serve(first, "tcp://127.0.0.1:0").start()
            address = server.address
            with (
                hr.Client(address, compression="zstd") as client,
                client.replay("r").writer(items=[hr.ItemRule("t", 4)]) as writer,
            ):
                samples = client.queue("q")
                writer.append(step(0))
                samples.send(step(0))
                writer.flush()
                samples.wait(10)
                link = client._session.link()
                server.stop()
                # Its goodbye would end the waits below.
                until(lambda: not writer._rows._stream.is_connected)
                until(lambda: link.look_for_end() or link.failure)
                assert not samples._stream.owes_samples
                for number in range(1, 8):
                    writer.append(step(number))
                    samples.send(step(number))
                with serve(not first, address) as second:
                    writer.flush(20)
                    samples.wait(20)
                    received = second.statistics().bytes_in
                    for _ in range(2):
                        batch, _ = client.queue("q").sample(timeout=10)
                        for place in range(4):
                            expected = step(int(batch["reward"][place]))
                            assert all(
                                (batch[name][place] == value).all() for name, value in expected.items()
                            )
                    windows = client.replay("r").sample("t", 5)
                    writer.close(20)
            # Nothing of the first server's compression is left, or of its lack.
            frames = (8 + 7) * 84 * 84
            assert received > frames if first else received < frames
    assert windows["reward"].tolist() == [[n, n + 1, n + 2, n + 3] for n in range(5)]
    for window, rewards in zip(windows["frame"], windows["reward"], strict=True):
        assert (window == [step(int(reward))["frame"] for reward in rewards]).all()


def test_a_client_without_zstd_is_told_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    zstd._library.cache_clear()
    try:
        with pytest.raises(ImportError, match=r'pip install "headrace\[zstd\]"'):
            compressed_columns("zstd")
        assert compressed_columns(None) is None
    finally:
        monkeypatch.undo()
        zstd._library.cache_clear()


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ("gzip", ValueError, "expected 'zstd', got 'gzip'"),
        ({"frame": "lz4"}, ValueError, "expected 'zstd', got 'lz4'"),
        (["frame"], TypeError, "a dict from paths of columns"),
        ({3: "zstd"}, TypeError, "expected paths of columns, got 3"),
        ({"frames": "zstd"}, ValueError, "has no column 'frames'; there are 'frame', 'noise', 'reward'"),
    ],
)
def test_a_wrong_choice_is_refused(choice, error, message):
    with (
        hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 1)]) as replay,
        hr.Server({"r": replay}) as server,
    ):
        with pytest.raises(error, match=message):
            hr.Client(server.address, compression=choice)
        assert server.statistics().connections <= 1


def test_a_dict_without_paths_compresses_nothing():
    assert compressed_columns({}) is None


# ---- payloads --------------------------------------------------------------------------------------------------------

pieces = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "a/b", "c"]),
        st.one_of(st.binary(max_size=3000), st.integers(0, 200_000).map(bytes)),
    ),
    max_size=6,
)


def travelled(before, parts, most=1 << 30):
    """Returns the payload that a receiver makes of a packed one."""
    unpacker = PayloadUnpacker(most)
    for message in before:
        assert unpacker.take(Frame(message, b"", [])) is None
    return bytes(unpacker.take(Frame(Ping(), b"".join(parts), [])).payload)


@given(pieces, st.sampled_from([("",), ("a",), ("a/b", "c")]))
def test_any_payload_comes_as_it_was(columns, paths):
    parts = [memoryview(data) for _, data in columns]
    before, packed = PayloadPacker(CompressedColumns(paths)).packed(parts, [path for path, _ in columns])
    assert travelled(before, packed) == b"".join(parts)
    assert sum(map(len, packed)) <= sum(map(len, parts))
    chosen = CompressedColumns(paths)
    for (path, data), one in zip(columns, packed, strict=True):
        if path is None or not chosen.has(path) or len(data) < packing._LEAST_NBYTES:
            assert one == data


def test_a_column_that_does_not_shrink_is_tried_again_later(monkeypatch):
    tried = []
    whole = zstd.compressed
    monkeypatch.setattr(packing.zstd, "compressed", lambda data: tried.append(len(data)) or whole(data))
    packer = PayloadPacker(CompressedColumns(("",)))
    noise = memoryview(np.random.default_rng(0).bytes(5000))
    for _ in range(2 * (1 + packing._RESTS)):
        assert packer.packed([noise, memoryview(bytes(2000))], ["noise", "zeros"])[1][0] is noise
    assert tried.count(5000) == 2
    assert tried.count(2000) == 2 * (1 + packing._RESTS)


def test_a_payload_of_which_little_shrinks_travels_as_it_is():
    """The receiver would copy all of it."""
    packer = PayloadPacker(CompressedColumns(("zeros",)))
    parts = [memoryview(bytes(1500)), memoryview(bytes(100_000))]
    before, packed = packer.packed(parts, ["zeros", "other"])
    assert not before
    assert packed is parts
    before, packed = packer.packed([parts[0], parts[1][:10_000]], ["zeros", "other"])
    assert len(before) == 1
    assert sum(map(len, packed)) < 10_200


BOMB = zstd.compressed(memoryview(bytes(1 << 24)))
HONEST = zstd.compressed(memoryview(bytes(5000)))


@pytest.mark.parametrize(
    ("buffers", "payload", "message"),
    [
        ([(5000, len(BOMB))], BOMB, "expected compressed data of 5000 bytes"),
        ([(5001, len(HONEST))], HONEST, "of 5001 bytes"),
        ([(4999, len(HONEST))], HONEST, "of 4999 bytes"),
        ([(5000, len(HONEST) - 1)], HONEST[:-1], "of 5000 bytes"),
        ([(5000, len(HONEST) + 1)], HONEST + b"x", "something behind"),
        ([(5000, 2 * len(HONEST))], HONEST + HONEST, "something behind"),
        ([(5000, 8)], b"nonsense", "cannot be decompressed"),
        ([(5000, 0)], b"", "of 5000 bytes"),
        ([(5000, len(HONEST))], b"", f"a payload of {len(HONEST)} bytes, and sent 0"),
        ([(5, 6)], b"123456", "smaller than 5 bytes"),
        ([(5, -1)], b"", "smaller than 5 bytes"),
        ([(1 << 62, 9)], b"", "at most 65536 are taken"),
        ([(40_000, 9), (40_000, 9)], b"", "80000 bytes; at most 65536"),
    ],
)
def test_a_payload_that_is_not_what_was_announced_is_refused(buffers, payload, message):
    """WI2, WI6"""
    with pytest.raises(ProtocolError, match=message):
        travelled([Packed(buffers=buffers)], [payload], most=1 << 16)


def test_announcements_without_a_payload_are_refused():
    """WI3"""
    unpacker = PayloadUnpacker(100)
    unpacker.take(Frame(Packed(buffers=[]), b"", []))
    with pytest.raises(ProtocolError, match="sent none"):
        unpacker.take(Frame(Packed(buffers=[]), b"", []))


def test_a_frame_cannot_ask_for_a_large_window():
    """WI3: no memory in proportion to a number in the data"""
    window_of_1_gib = b"\x28\xb5\x2f\xfd\x00\xa0" + b"\x01\x00\x00"
    with pytest.raises(ProtocolError, match="cannot be decompressed"):
        travelled([Packed(buffers=[(5000, len(window_of_1_gib))])], [window_of_1_gib])


@given(st.lists(st.tuples(st.integers(-1, 9000), st.integers(-1, 60)), max_size=4), st.binary(max_size=60))
def test_any_bytes_are_refused_or_taken(buffers, payload):
    """WI3"""
    for data in (payload, HONEST[:30] + payload):
        with suppress(ProtocolError):
            travelled([Packed(buffers=buffers)], [data])


def test_a_bomb_ends_its_own_connection():
    """WI2, WI3: limits hold on the decompressed size."""
    limits = hr.server.Limits(payload_nbytes=1 << 16)
    announced = encoded(Packed(buffers=[(1 << 24, len(BOMB))]))
    lied = encoded(Packed(buffers=[(1 << 16, len(BOMB))]))
    samples = encoded(SendSamples(number=1, queue="q", first=1, count=1), BOMB)
    with hr.BatchQueue(STEP, 2) as queue, hr.Server({"q": queue}, limits=limits) as server:
        assert b"at most 65536 are taken" in said_to(server, SESSION + announced + samples)
        assert b"expected compressed data of 65536" in said_to(server, SESSION + lied + samples)
        with hr.Client(server.address) as client:
            assert client.ping() < 10
        assert server.statistics().protocol_errors == 2


def test_a_client_that_did_not_ask_may_not_announce():
    """WI3"""
    with hr.BatchQueue(STEP, 2) as queue, hr.Server({"q": queue}) as server:
        plain = SESSION.replace(b"\xaacompressed\x91\xa0", b"\xaacompresseD\x91\xa0")
        assert plain != SESSION
        assert b"expected a request, got Packed" in said_to(server, plain + encoded(Packed(buffers=[])))
