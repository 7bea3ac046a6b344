"""server WI3, LP2: well-formed messages of a writer, in any order, harm neither the server nor other writers."""

import logging
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.messages import operations, writing
from headrace.server.messages.rules import described_rule
from tests.server.test_hostile_peers import SESSION, connected, said_to

SIGNATURE = hr.Signature.like({"n": np.int64(0), "x": np.zeros(2, np.float32)})
LANES = 2

small = st.integers(-2, 6) | st.sampled_from([-(2**63), 2**63 - 1, 2**32])
names = st.lists(st.sampled_from(["n", "x", "y", ""]), max_size=3)
tables = st.sampled_from(["t", "u", "other"])
lanes = st.one_of(
    st.none(),
    st.lists(st.integers(-1, 3), max_size=3).map(lambda each: np.array(each, np.int64).tobytes()),
    st.binary(max_size=20),
)
flags = st.one_of(st.sampled_from([b"\0\0", b"\1\0", b"\1\1", b""]), st.binary(max_size=3))
maps = st.dictionaries(st.integers(-1, 3), flags, max_size=2)
given_values = st.none() | st.builds(
    operations.Given,
    priorities=st.dictionaries(
        st.integers(-1, 3),
        st.lists(st.floats(), max_size=3).map(lambda each: np.array(each).tobytes()) | st.binary(max_size=9),
        max_size=2,
    ),
    rows=maps,
    finals=maps,
)
rules = st.lists(
    st.builds(
        writing.RuleDescription,
        kind=st.sampled_from(["item", "episode", "pattern"]),
        table=tables,
        length=small,
        priority=st.floats(),
        stride=small,
        end=st.sampled_from([*hr.EndOfEpisode.__members__, "other"]),
        lookahead=small,
        skip=small,
    )
    | st.just(described_rule(hr.ItemRule("t", 2, stride=2, end=hr.EndOfEpisode.CONTINUE)))
    | st.just(described_rule(hr.ItemRule("u", 1))),
    max_size=3,
)
counts = st.dictionaries(tables, small, max_size=2)
places = st.none() | st.builds(operations.StepsPlace, offset=small, capacity=small, first=small)
PAYLOADS = [b"", bytes(16), bytes(32), bytes(64), bytes(96), bytes(160)]


def opening(writer, **fields):
    given = {"replay": "r", "lanes": LANES, "rules": [], "history": None, "session": b"x" * 16}
    return writing.OpenWriter(writer=writer, **{**given, **fields})


def operation(kind, **fields):
    return st.builds(
        kind, writer=st.integers(0, 1), sequence=st.integers(0, 12), must=st.booleans(), **fields
    )


openings = st.builds(
    opening,
    st.integers(0, 2),
    replay=st.sampled_from(["r", "r", "r", "other"]),
    lanes=st.sampled_from([1, LANES, LANES, 0, -1, 2**40]),
    rules=rules,
    history=st.none() | small,
    session=st.sampled_from([b"x" * 16, b"y" * 16, b""]),
    base=small,
    lengths=lanes.filter(lambda each: each is not None),
    streams=st.lists(st.just(bytes(32)) | st.binary(max_size=33), max_size=2),
    restored=small,
    taken=counts,
    applied=counts,
)
messages = st.one_of(
    openings,
    operation(operations.AppendSteps, steps=small, version=small, place=places, given=given_values),
    operation(
        operations.AppendEnds,
        version=small,
        place=places,
        idle=flags,
        ended=lanes.filter(lambda each: each is not None),
        columns=names,
        given=given_values,
    ),
    operation(
        operations.EndLanes,
        lanes=lanes.filter(lambda each: each is not None),
        columns=st.none() | names,
        given=given_values,
    ),
    operation(operations.CutLanes, end=st.none() | st.sampled_from(["PAD", "LAST", "?"]), given=given_values),
    operation(operations.DropLanes, lanes=lanes),
    operation(operations.EndStreams, lanes=lanes),
    operation(
        operations.CreateItem,
        table=tables,
        length=small,
        priority=st.floats(),
        lane=small,
        key=st.integers(0, 9),
    ),
    operation(operations.MakeRoom, steps=small),
    operation(operations.DeclareFinals, columns=names),
    operation(operations.DeclarePadding, table=tables, columns=names),
    operation(operations.Report),
    st.builds(writing.WaitPending, writer=st.integers(0, 1), ticket=small, most=small),
    st.builds(writing.StopWaiting, writer=st.integers(0, 1), ticket=small),
    st.builds(writing.Sync, writer=st.integers(0, 1), ticket=small),
    st.builds(writing.WantKeys, writer=st.integers(0, 1)),
    st.builds(writing.CloseWriter, writer=st.integers(0, 1)),
)


def in_order(each):
    """Numbers the operations as they should be, so that more of them are applied."""
    sequence = 0
    for message, _ in each:
        if isinstance(message, operations.Operation):
            steps = message.steps if isinstance(message, operations.AppendSteps) else 1
            sequence = min(sequence + max(1, steps), 2**63 - 1)  # A message has no room for larger ones.
            message.sequence = sequence
            message.writer = 0
    return each


said = st.lists(st.tuples(messages, st.sampled_from(PAYLOADS)), max_size=12)


@pytest.fixture(scope="module", params=["memory", "disk"])
def served(request, tmp_path_factory):
    fifo = hr.selectors.Fifo()
    settings = {"max_size": 10**6, "max_times_sampled": 1}
    tables = [hr.Table(name, sampler=fifo, remover=fifo, **settings) for name in "tu"]
    tables.append(hr.Table("honest", sampler=fifo, remover=fifo, **settings))
    path = tmp_path_factory.mktemp("hostile") / "store" if request.param == "disk" else None
    with hr.Replay(SIGNATURE, tables, path=path, capacity=100_000) as replay:
        with hr.Server({"r": replay}) as server, hr.Client(server.address, timeout=10) as client:
            remote = client.replay("r")
            with remote.writer(items=[hr.ItemRule("honest", 2)], history=4) as writer:
                yield server, remote, writer


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(said | said.map(in_order), rules, st.booleans())
def test_messages_of_writers_in_any_order(served, caplog, said, rules, has_writer):
    server, remote, writer = served
    first = [(opening(0, rules=rules), b""), (opening(1), b"")] if has_writer else []
    with caplog.at_level(logging.ERROR, "headrace"):
        said_to(server, SESSION + b"".join(encoded(*each) for each in first + said))
        for n in range(3):
            writer.append({"n": n, "x": np.full(2, n)})
        writer.flush(10)
        writer.end_episode()
        batch = remote.sample("honest", 2, timeout=10)
    assert batch.data["n"].tolist() == [[0, 1], [1, 2]]
    assert batch.data["x"][..., 0].tolist() == [[0, 1], [1, 2]]
    assert not caplog.records, caplog.text
    for name in "tu":
        remote.reset(name)


def test_a_writer_that_waits_for_pages_is_not_read_without_end():
    """SV7, SV8: its operations are held up to a bound; others are served, and it goes on when there are pages."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=10**6)
    signature = hr.Signature.like({"x": np.zeros(1 << 16, np.uint8)})
    steps, count = 8, 400
    with hr.Replay(signature, [table], capacity=64) as replay, hr.Server({"r": replay}) as server:
        with connected(server) as peer, hr.Client(server.address) as client:
            rule = described_rule(hr.ItemRule("t", 1))
            peer.sendall(SESSION + encoded(opening(0, lanes=1, rules=[rule])))
            sent = 0

            def send():
                nonlocal sent
                with suppress(OSError):
                    while sent < count:
                        sequence = (sent + 1) * steps
                        step = operations.AppendSteps(writer=0, sequence=sequence, steps=steps, version=0)
                        peer.sendall(encoded(step, bytes(steps << 16)))
                        sent += 1

            sending = threading.Thread(target=send)
            sending.start()
            until(lambda: any(each.waits and each.is_full for each in list(server._connections._open)))
            sending.join(0.5)
            assert sent * (steps << 16) < 120 << 20, "about 64 MiB and what the system buffers"
            assert client.ping() < 10
            stored = client.replay("r").statistics().tables["t"].inserts
            assert stored >= 64
            replay.reset("t")
            until(lambda: replay.table("t").statistics().inserts >= 64)
            peer.shutdown(socket.SHUT_RDWR)
            sending.join(20)


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        (
            operations.AppendSteps,
            {"steps": 1, "version": 2**31},
            b"version: expected a number from -2147483648 to 2147483647, got 2147483648",
        ),
        (
            operations.AppendSteps,
            {"steps": 1, "version": -(2**40)},
            b"version: expected a number from -2147483648",
        ),
        (operations.DropLanes, {"lanes": bytes(7)}, b"lanes: expected numbers of 8 bytes each, got 7 bytes"),
        (
            operations.AppendSteps,
            {"steps": 1, "version": 0, "given": operations.Given(priorities={0: bytes(9)})},
            b"priorities: expected numbers of 8 bytes each, got 9 bytes",
        ),
    ],
)
def test_a_bad_operation_says_what_was_expected(kind, fields, told):
    """SS2, CL7: the writer goes on."""
    with (
        hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("t", 9)]) as replay,
        hr.Server({"r": replay}) as server,
    ):
        bad = encoded(kind(writer=0, sequence=1, **fields), bytes(8) if "steps" in fields else b"")
        good = encoded(operations.AppendSteps(writer=0, sequence=2, steps=1, version=0), bytes(8))
        rule = described_rule(hr.ItemRule("t", 1))
        assert told in said_to(server, SESSION + encoded(opening(0, lanes=1, rules=[rule])) + bad + good)
        assert replay.sample("t", 1, timeout=10).data["n"].tolist() == [0]


@pytest.mark.parametrize("nbytes", [3, 9000], ids=["payload", "shared memory"])
@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_bytes_of_bools_that_are_neither_0_nor_1_are_true(tmp_path, way, nbytes):
    """WI3: libraries count such a byte as 2 or 255."""
    place = {"unix": tmp_path / "socket", "address": None} if way == "unix" else {}
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=9, max_times_sampled=1)
    odd = np.array([0, 1, 255] * (nbytes // 3), np.uint8).view(np.bool_)
    with (
        hr.Replay(hr.Signature.like({"flags": np.zeros(nbytes, np.bool_)}), [table]) as replay,
        hr.Server({"r": replay}, **place) as server,
        hr.Client(server.addresses[0]) as client,
        client.replay("r").writer(items=[hr.ItemRule("t", 1)]) as writer,
    ):
        writer.append({"flags": odd})
        writer.end_episode({"flags": odd})
        writer.flush(10)
        found = replay.sample("t", 1, timeout=10)["flags"].view(np.uint8)
        assert found.reshape(-1).tolist() == [0, 1, 1] * (nbytes // 3)


@pytest.mark.parametrize(
    ("end", "payload"),
    [
        (None, b""),
        (operations.CutLanes(writer=0, sequence=1, end=None), b""),
        (operations.DropLanes(writer=0, sequence=1, lanes=None), b""),
        (operations.EndLanes(writer=0, sequence=1, lanes=np.arange(2).tobytes(), columns=None), b""),
        (operations.EndLanes(writer=0, sequence=1, lanes=np.arange(1, 2).tobytes(), columns=["n"]), bytes(8)),
    ],
    ids=["lost", "cut", "drop", "end", "final"],
)
@pytest.mark.parametrize("rule", [hr.ItemRule("t", 1), hr.ItemRule("t", 2, end=hr.EndOfEpisode.PAD)])
def test_episodes_that_end_without_a_row_here_end_none_of_another_writer(end, payload, rule):
    """LP5, B5: the connection of a writer may also be lost before it has sent again a row of the episodes under way."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=9)
    with (
        hr.Replay(hr.Signature.like({"n": 0}), [table]) as replay,
        hr.Server({"r": replay}) as server,
        replay.writer(items=[hr.ItemRule("t", 1)]) as writer,
    ):
        for n in (1, 2):
            writer.append({"n": n})
        lengths = np.ones(LANES, np.int64).tobytes()
        said = encoded(opening(0, rules=[described_rule(rule)], lengths=lengths))
        said += b"" if end is None else encoded(end, payload)
        assert b"Error" not in said_to(server, SESSION + said)
        until(lambda: not server.statistics().connections)
        views = {"next": hr.View("n", shift=1)}
        found = [item["next"].reshape(-1).tolist() for item in replay.items("t", views=views)]
        assert found == [[2], [0]]
