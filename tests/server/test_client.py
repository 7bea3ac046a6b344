"""Clients: the same batches as in process, handshakes, waits, and errors."""

import copy
import dataclasses
import errno
import gc
import os
import pickle
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as hr

SIGNATURE = hr.Signature.like(
    {
        "observation": {"camera": np.zeros((64, 64), np.uint8), "joints": np.zeros(3, np.float32)},
        "action": np.zeros((), np.int64),
        "reward": np.zeros((), np.float32),
        "terminated": False,
        "truncated": False,
    }
)


def filled(seed=0):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    sequences = hr.Table("s", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    replay = hr.Replay(SIGNATURE, [table, sequences], seed=seed)
    with replay.writer(items=[hr.ItemRule("t", 1, lookahead=2), hr.ItemRule("s", 4)]) as writer:
        for n in range(60):
            writer.append(
                {
                    "observation": {
                        "camera": np.full((64, 64), n, np.uint8),
                        "joints": np.full(3, n, np.float32),
                    },
                    "action": n,
                    "reward": n / 2,
                    "terminated": n % 20 == 19,
                    "truncated": False,
                }
            )
            if n % 20 == 19:
                writer.end_episode({"observation": SIGNATURE.zeros()["observation"]})
    return replay


VIEWS = {
    "as it is stored": None,
    "transitions": hr.views.transition(2, 0.9),
    "stacks": {"o": hr.View("observation", shift="-3:0", fill="edge", mask=True), "t": hr.View("t")},
    "fills": {
        "j": hr.View("observation/joints", shift=-1, fill=np.array([1, 2, 3])),
        "o": hr.View("observation", shift=[-2, 0], fill={"camera": 7, "joints": 0.5}),
    },
    "every": {"a": hr.View("action", every=2, mask=True)},
    "recurrent": hr.views.recurrent(3, burn_in=2, columns=["action"]),
}


@pytest.fixture(params=["tcp", "unix"])
def address(request, tmp_path):
    return {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("batch_size", [3, 256])
def test_batches_are_those_of_the_replay_itself(address, views, batch_size):
    """CL3: the same draws, views, masks, and writable arrays."""
    shown = VIEWS[views]
    with filled() as replay, filled() as same, hr.Server({"r": replay}, **address) as server:
        with hr.Client(server.address) as client:
            remote = client.replay("r")
            for table in ("t", "s", "t"):
                expected = same.sample(table, batch_size, views=shown)
                found = remote.sample(table, batch_size, views=shown)
                np.testing.assert_equal(found.data, expected.data)
                assert hr.Signature.like(found.data) == hr.Signature.like(expected.data)
                np.testing.assert_equal(found.mask, expected.mask)
                assert found.layout == expected.layout
                for name in ("keys", "probabilities", "table_size", "priorities", "times_sampled"):
                    np.testing.assert_array_equal(
                        getattr(found.info, name), getattr(expected.info, name), strict=True
                    )
                found.info.keys[:] = 0
                next(iter(SIGNATURE.flatten(found.data).values()) if shown is None else iter([np.zeros(1)]))[
                    :
                ] = 1


def test_large_batches_in_shared_memory_stay_as_they_are(tmp_path):
    """LP4: many held batches keep their rows; blocks are used again when the batches are garbage."""
    with filled() as replay, hr.Server({"r": replay}, address=None, unix=tmp_path / "s") as server:
        with hr.Client(server.address) as client:
            remote = client.replay("r")
            sent = server.statistics().bytes_out
            held = [remote.sample("t", 256, views={"c": hr.View("observation/camera")}) for _ in range(12)]
            assert server.statistics().bytes_out - sent < held[0]["c"].nbytes
            copies = [batch["c"].copy() for batch in held]
            for batch in held[::2]:
                batch["c"][:] = 0
            for batch, copy in zip(held[1::2], copies[1::2], strict=True):
                np.testing.assert_array_equal(batch["c"], copy)
            kept = held[3]["c"][5]
            expected = kept.copy()
            del held, batch
            gc.collect()
            for _ in range(20):
                rows = remote.sample(
                    "t", 256, views={"c": hr.View("observation/camera"), "a": hr.View("action")}
                )
                assert (rows["c"] == rows["a"][:, None, None]).all()
            np.testing.assert_array_equal(kept, expected)


def test_views_with_functions_are_refused(address):
    views = hr.views.hindsight(
        {"action": hr.View("action")}, goal="action", achieved="action", reward=lambda a, g, i: a * 1.0
    )
    with (
        filled() as replay,
        hr.Server({"r": replay}, **address) as server,
        hr.Client(server.address) as client,
    ):
        with pytest.raises(TypeError, match="hindsight"):
            client.replay("r").sample("t", 1, views=views)
        with pytest.raises(TypeError, match="expected a dict of View, got list"):
            client.replay("r").sample("t", 1, views=[])
        with pytest.raises(hr.SpecError, match="no column 'x'"):
            client.replay("r").sample("t", 1, views={"x": hr.View()})


# ---- handshakes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def replay():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        yield replay


def put(replay, *values):
    with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        for value in values:
            writer.append({"n": value})


@pytest.mark.parametrize(
    ("asked", "given", "told"),
    [
        ("secret", None, "asks for a token"),
        ("secret", "guess", "is not that of the server"),
        (None, "secret", "does not ask for one"),
    ],
)
def test_a_token_that_does_not_fit_is_refused(replay, asked, given, told):
    """AU2"""
    with hr.Server({"r": replay}, token=asked) as server:
        began = time.monotonic()
        with pytest.raises(hr.AuthenticationError, match=told) as caught:
            hr.Client(server.address, token=given)
        assert "secret" not in str(caught.value)
        if asked:
            assert time.monotonic() - began >= 0.1
        until(lambda: server.statistics().rejected_handshakes == 1)
        assert server.statistics().connections_total == 0
        with hr.Client(server.address, token=asked) as client:
            assert client.statistics().connections == 1


def test_nobody_who_listens_is_disconnected(replay, tmp_path):
    """CL1"""
    with hr.Server({"r": replay}) as server:
        address = server.address
    with pytest.raises(hr.Disconnected, match="nobody listens"):
        hr.Client(address)
    with pytest.raises(hr.Disconnected, match="nobody listens"):
        hr.Client(f"unix://{tmp_path}/none")


@pytest.mark.parametrize(
    ("said", "told"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n......", "HTTP"), (b"", "has ended")]
)
def test_a_peer_of_another_kind_is_disconnected(said, told):
    """CL1: the message names what came."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(hr.Disconnected, match=told):
            hr.Client(f"tcp://127.0.0.1:{listening.getsockname()[1]}", timeout=5)
        thread.join()


def test_a_silent_peer_ends_the_handshake_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with pytest.raises(hr.DeadlineExceeded, match="handshake"):
            hr.Client(f"tcp://127.0.0.1:{listening.getsockname()[1]}", timeout=0.2)


def test_unknown_names_and_other_signatures_are_refused(replay):
    """CL2, CL8"""
    queue = hr.BatchQueue({"n": 0}, 2)
    with hr.Server({"r": replay, "b": queue}) as server, hr.Client(server.address) as client:
        with pytest.raises(KeyError, match=r"'r', 'b'"):
            client.replay("x")
        with pytest.raises(TypeError, match="expected a replay, got queue"):
            client.replay("b")
        with pytest.raises(hr.SpecError, match="n: expected float64"):
            client.replay("r", signature=hr.Signature.like({"n": 0.0}))
        assert client.replay("r", signature=replay.signature).signature == replay.signature


# ---- waits ---------------------------------------------------------------------------------------------------------


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_a_waiting_call_holds_up_no_other(replay, address):
    """CL4, SV7: one thread waits for a sample while others call on the same client."""
    with hr.Server({"r": replay}, **address) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(remote.sample("q", 1, timeout=10)["n"][0]))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        until(lambda: remote.table("q").statistics().waiting_samples == 3)
        assert client.ping() < 5
        put(replay, 5, 6, 7)
        for thread in threads:
            thread.join(10)
        assert sorted(found) == [5, 6, 7]


def test_a_wait_ends_at_its_deadline(replay, address):
    with hr.Server({"r": replay}, **address) as server, hr.Client(server.address) as client:
        remote = client.replay("r")
        for timeout in (0, 0.05, -1):
            began = time.monotonic()
            with pytest.raises(hr.DeadlineExceeded, match="table 'q': a sample of 1 waited"):
                remote.sample("q", 1, timeout=timeout)
            assert max(timeout, 0) <= time.monotonic() - began < 10
        assert remote.table("q").statistics().waiting_samples == 0
        put(replay, 1)
        assert remote.sample("q", 1)["n"].tolist() == [1]


def test_a_client_that_is_gone_leaves_the_queue(replay, address):
    """LP1: its waits end, and take nothing."""
    with hr.Server({"r": replay}, **address) as server:
        client = hr.Client(server.address)
        remote = client.replay("r")
        errors = []

        def wait():
            with pytest.raises(hr.Closed) as caught:
                remote.sample("q", 1)
            errors.append(caught.value)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: replay.table("q").statistics().waiting_samples == 1)
        client.close()
        thread.join(10)
        assert len(errors) == 1
        until(lambda: replay.table("q").statistics().waiting_samples == 0)
        until(lambda: server.statistics().connections == 0)
        put(replay, 4)
        assert len(replay.table("q")) == 1


def test_stopping_the_server_ends_waits(replay, address):
    """AK7, SV5: waiting calls end with `Closed`, at once."""
    server = hr.Server({"r": replay}, **address).start()
    with hr.Client(server.address) as client:
        remote = client.replay("r")
        errors = []

        def wait():
            try:
                remote.sample("q", 1)
            except hr.HeadraceError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: replay.table("q").statistics().waiting_samples == 1)
        server.stop()
        thread.join(10)
        assert [type(error) for error in errors] == [hr.Closed]
        server.stop()
        client._session.timeout = 0.3  # So long it tries to reach the server.
        with pytest.raises((hr.Disconnected, hr.Closed)):
            client.ping()
    put(replay, 1)
    assert len(replay.table("q")) == 1


def test_a_client_connects_again(replay, tmp_path):
    """AK5: statistics are asked for again; a sample that is asked for raises, and the next one works."""
    with hr.Server({"r": replay}, address=None, unix=tmp_path / "s") as server:
        client = hr.Client(server.address)
    with hr.Server({"r": replay}, address=None, unix=tmp_path / "s"):
        with client, ThreadPoolExecutor(1) as threads:
            assert client.statistics().served["r"].tables["q"].size == 0
            asked = threads.submit(client.replay("r").sample, "q", 1, timeout=10)
            until(lambda: replay.table("q").statistics().waiting_samples == 1)
            client._session.link()._channel.shutdown()
            with pytest.raises(hr.Disconnected):
                asked.result(10)
            # Otherwise the request of the lost connection, which the server has not noticed yet, gets the item.
            until(lambda: replay.table("q").statistics().waiting_samples == 0)
            put(replay, 1)
            assert client.replay("r").sample("q", 1)["n"].tolist() == [1]


def test_another_replay_behind_the_same_address_is_not_sampled(replay, tmp_path):
    """CL8: of the same size, so that only the schema tells them apart."""
    path = tmp_path / "s"
    tables = [hr.Table.queue("q", 10)]
    with hr.Server({"r": replay}, address=None, unix=path) as server:
        client = hr.Client(server.address, timeout=5)
        remote = client.replay("r")
        remote.statistics()
    with hr.Replay(hr.Signature.like({"n": 0.0}), tables) as other:
        with hr.Server({"r": other}, address=None, unix=path):
            with other.writer(items=[hr.ItemRule("q", 1)]) as writer:
                writer.append({"n": 1.5})
            for call in (
                lambda: remote.sample("q", 1, timeout=5),
                lambda: remote.get("q", [1]),
                lambda: next(iter(hr.loaders.Loader(remote, "q", 1))),
            ):
                with pytest.raises(hr.SpecError, match="'r' on .* is another one"):
                    call()
            assert len(other.table("q")) == 1
        with hr.Server({"s": other}, address=None, unix=path):
            with pytest.raises(KeyError, match="serves no 'r' any more; there are 's'"):
                remote.sample("q", 1, timeout=5)
    client.close()


def test_a_server_that_was_started_again_meanwhile_is_not_missed(replay, tmp_path):
    """AK5: nothing was asked when the connection ended, so the next sample is not lost with it."""
    options = {"address": None, "unix": tmp_path / "s"}
    put(replay, 1)
    with hr.Server({"r": replay}, **options) as server:
        client = hr.Client(server.address)
        remote = client.replay("r")
    with hr.Server({"r": replay}, **options), client:
        assert remote.sample("q", 1)["n"].tolist() == [1]


def test_a_sample_keeps_to_its_timeout_while_it_connects_again(replay, tmp_path):
    """CL5: a server that does not answer the handshake"""
    with hr.Server({"r": replay, "b": hr.BatchQueue(0, 1)}, address=None, unix=tmp_path / "s") as server:
        client = hr.Client(server.address, timeout=30)
        calls = [client.replay("r").sample, client.queue("b").sample]
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        for call, arguments in zip(calls, (("q", 1), ()), strict=True):
            began = time.monotonic()
            with pytest.raises(hr.DeadlineExceeded):
                call(*arguments, timeout=0)
            assert time.monotonic() - began < 10
    client.close()


@pytest.mark.parametrize("timeout", ["1", True, [1], float("nan")])
def test_a_timeout_that_is_not_a_time_is_refused(replay, timeout):
    """L9, CL3"""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        for each in (replay, client.replay("r")):
            with each.writer() as writer:
                for call, arguments in (
                    (each.sample, ("q", 1)),
                    (each.writer, ()),
                    (writer.flush, ()),
                    (writer.close, ()),
                ):
                    with pytest.raises(
                        (TypeError, ValueError), match="^timeout: expected seconds or None, got"
                    ):
                        call(*arguments, timeout=timeout)


def test_numbers_that_are_too_large_for_a_message(replay):
    """CL3, L7"""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        for each in (replay, client.replay("r")):
            with pytest.raises(ValueError, match=f"expected at most .* got {2**70}"):
                each.sample("q", 2**70)
            assert not each.can_sample("q", 2**70)
            assert not each.can_insert("q", 2**70)


def test_a_forked_child_is_refused(replay):
    """CL9"""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        child = os.fork()
        if child == 0:
            try:
                client.ping()
            except hr.Closed as error:
                os._exit(0 if "forked" in str(error) else 2)
            except BaseException:
                os._exit(3)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.ping() > 0


# ---- servers -------------------------------------------------------------------------------------------------------


def test_a_server_starts_once(replay):
    """SV1"""
    server = hr.Server({"r": replay})
    with pytest.raises(hr.Closed, match="not started"):
        server.address  # noqa: B018
    with server:
        with pytest.raises(hr.HeadraceError, match="start"):
            server.start()
        with pytest.raises(OSError, match="cannot listen"):
            hr.Server({"r": replay}, address=server.address).start()


def fail_with_data_on_their_way(address):
    with hr.Client(address, timeout=20) as client:
        writer = client.replay("r").writer(items=[hr.ItemRule("q", 1)])
        for n in range(5):
            writer.append({"n": n})
        samples = client.queue("q")
        for n in range(6):
            samples.send(n)
        raise KeyError("of the user")


def fail_with_nothing(address):
    with warnings.catch_warnings(), hr.Client(address):
        warnings.simplefilter("error")
        raise KeyError("of the user")


def test_a_client_that_an_exception_ends_tells_what_it_leaves_behind():
    """CL6, replay I6: nothing is waited for, and nothing is dropped in silence."""
    with (
        hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 2)]) as replay,
        hr.BatchQueue(0, 1, num_buffers=2) as queue,
        hr.Server({"r": replay, "q": queue}) as server,
    ):
        # At least so many: the client need not know yet what is stored.
        with (
            pytest.warns(ResourceWarning, match=r"up to [3-5] items and [4-6] samples"),
            pytest.raises(KeyError, match="of the user"),
        ):
            fail_with_data_on_their_way(server.address)
        with pytest.raises(KeyError, match="of the user"):
            fail_with_nothing(server.address)


def test_a_second_ctrl_c_at_the_end_of_a_client_leaves_no_connection(replay, monkeypatch):
    """CL6: it comes while the client counts what it leaves behind."""

    class Interrupted:
        def __init__(self, session):
            self._session = session

        @property
        def unconfirmed(self):
            raise KeyboardInterrupt

        def __getattr__(self, name):
            return getattr(self._session, name)

    with hr.Server({"r": replay}) as server:
        client = hr.Client(server.address)
        monkeypatch.setattr(client, "_session", Interrupted(client._session))
        with pytest.raises(KeyboardInterrupt), client:
            raise KeyError("of the user")
        with pytest.raises(hr.Closed):
            client.ping()


def test_a_path_that_no_socket_can_have_is_named(replay, tmp_path):
    """SV1, SS2: an OSError with its number and the remedy"""
    server = hr.Server({"r": replay}, address=None, unix=tmp_path / ("x" * 108))
    with pytest.raises(OSError, match="at most 107 bytes; choose a shorter one") as caught:
        server.start()
    assert caught.value.errno == errno.ENAMETOOLONG


def test_a_socket_file_of_a_dead_server_is_replaced(replay, tmp_path):
    """SV2"""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with hr.Server({"r": replay}, unix=path) as server:
        assert server.addresses[1] == f"unix://{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with hr.Client(server.addresses[1]) as client:
            assert client.ping() > 0
        with pytest.raises(OSError, match="another server"):
            hr.Server({"r": replay}, address=None, unix=path).start()
    assert not path.exists()


def test_addresses_of_other_machines_need_protection(replay):
    """SV3"""
    with pytest.raises(ValueError, match=r"token=.*tls="):
        hr.Server({"r": replay}, address="tcp://0.0.0.0:0")
    with pytest.warns(UserWarning, match="open to everyone"):
        hr.Server({"r": replay}, address="tcp://0.0.0.0:0", insecure=True)
    hr.Server({"r": replay}, address="tcp://0.0.0.0:0", token="t")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"unix": ""}, ValueError, "unix: expected a path, got ''"),
        ({"unix": 3}, TypeError, "unix: expected a path, got int"),
        ({"checkpoint": ""}, ValueError, "checkpoint: expected a path, got ''"),
        ({"checkpoint": 3}, TypeError, "checkpoint: expected a path, got int"),
        ({"keep": 3}, ValueError, "keep: expected a directory for checkpoints"),
    ],
)
def test_paths_are_checked(replay, arguments, error, message):
    """SS2: the message names the argument."""
    with pytest.raises(error, match=f"^{message}"):
        hr.Server({"r": replay}, **arguments)


def test_other_arguments_are_named(replay):
    """SS2"""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        with pytest.raises(ValueError, match="^drain_timeout: "):
            server.stop(-1)
        with pytest.raises(TypeError, match="^signature: expected a Signature, got dict"):
            client.replay("r", signature={"x": 0})
        with pytest.raises(hr.DeadlineExceeded, match="no connection in 0.0 s"):
            hr.Client(server.address, timeout=0)  # CL1
        for wrong in (server.address, None):
            with pytest.raises(TypeError, match="^addresses: expected a list of addresses, got "):
                hr.server.shards(wrong, "r")
    with pytest.raises(ValueError, match="^handshake_timeout: "):
        hr.server.Limits(handshake_timeout=float("nan"))


def test_what_is_served_is_checked(replay):
    for served in ({}, {"": replay}):
        with pytest.raises(ValueError, match="served"):
            hr.Server(served)
    for served in ([replay], {"r": 3}):
        with pytest.raises(TypeError, match="served"):
            hr.Server(served)
    for address in ("127.0.0.1:80", "tcp://x", "http://x:1", "unix://", "tcp://a..b:1", "tcp://[x:y]:1"):
        with pytest.raises(ValueError, match="address"):
            hr.Server({"r": replay}, address=address)


def test_statistics_count_connections_and_bytes(replay):
    """SS1, section 8"""
    queue = hr.BatchQueue({"n": 0}, 2)
    with hr.Server({"r": replay, "b": queue}) as server:
        with hr.Client(server.address) as client:
            found = client.statistics()
            assert (found.connections, found.connections_total, found.protocol_errors) == (1, 1, 0)
            assert found.bytes_in > 0
            assert found.bytes_out > 0
            assert found.served["r"] == replay.statistics()
            assert found.served["b"] == queue.statistics()
            assert found.version == hr.__version__
        until(lambda: server.statistics().connections == 0)
        assert server.statistics().connections_total == 1


@pytest.mark.parametrize("of", ["client", "server"])
def test_the_record_of_a_server_says_which_replays_are_closed(of):
    """SS2: they have no statistics any more, and the others still do."""
    replays = {name: hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) for name in "rs"}
    queue = hr.BatchQueue(0, 2)
    with (
        replays["s"],
        hr.Server({**replays, "b": queue}) as server,
        hr.Client(server.address, timeout=10) as client,
    ):
        replays["r"].close()
        served = (server if of == "server" else client).statistics().served
        assert list(served) == ["s", "b"]
        assert served.get("r") is None
        for record in (served, pickle.loads(pickle.dumps(served)), copy.deepcopy(served)):
            with pytest.raises(
                KeyError, match="statistics of 'r': this replay is closed; there are those of 's', 'b'"
            ):
                record["r"]
        with pytest.raises(KeyError, match="no statistics of 'x'; there are those of 's', 'b'"):
            served["x"]
        assert list(dataclasses.asdict(server.statistics())["served"]) == ["s", "b"]


def test_statistics_of_a_server_that_is_gone_end_with_their_own_timeout(replay):
    """CL5: it is the time of the call with its retries; the client's is thirty seconds."""
    with hr.Server({"r": replay}) as server, hr.Client(server.address, timeout=30) as client:
        assert client.statistics(timeout=5).connections == 1
        server.stop()
        with pytest.raises(hr.errors.HeadraceError):
            client.statistics(timeout=0)
        began = time.monotonic()
        with pytest.raises(hr.errors.Disconnected):
            client.statistics(timeout=0.1)
        assert time.monotonic() - began < 10
