"""Connections with TLS: the same protocol, certificates, and clear ends where the two sides do not fit."""

import datetime as dt
import socket
import ssl
import threading
import time

import numpy as np
import pytest

import headrace as hr
from tests.server.certificates import AUTHORITY, LONG_AGO, OTHER_AUTHORITY, client_context, server_context


@pytest.fixture
def replay():
    signature = hr.Signature.like({"n": 0, "frame": np.zeros(50_000, np.uint8)})
    with hr.Replay(signature, [hr.Table.queue("q", 99)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            for n in range(30):
                writer.append({"n": n, "frame": np.full(50_000, n, np.uint8)})
        yield replay


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_batches_come_encrypted(replay):
    """AU3: large batches and small ones, from several threads, and nothing readable on the wire."""
    with hr.Server({"r": replay}, tls=server_context(), token="secret") as server:
        with hr.Client(server.address, tls=client_context(), token="secret") as client:
            remote, found = client.replay("r"), []

            def sample():
                for size in (1, 9):
                    batch = remote.sample("q", size)
                    assert (batch["frame"] == batch["n"][:, None]).all()
                    found.extend(batch["n"].tolist())
                    client.ping()

            threads = [threading.Thread(target=sample) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert sorted(found) == list(range(30))
            assert client.statistics().bytes_out > 30 * 50_000


def test_the_socket_carries_no_plain_bytes(replay):
    with (
        hr.Server({"r": replay}, tls=server_context()) as server,
        socket.create_server(("127.0.0.1", 0)) as tap,
    ):
        seen = []

        def forward():
            one, _ = tap.accept()
            host, port = server.address.removeprefix("tcp://").split(":")
            other = socket.create_connection((host, int(port)))
            pump = threading.Thread(target=copy, args=(other, one))
            pump.start()
            copy(one, other)
            pump.join()
            one.close()
            other.close()

        def copy(source, destination):
            while data := source.recv(1 << 16):
                seen.append(data)
                destination.sendall(data)
            destination.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=forward)
        thread.start()
        with hr.Client(f"tcp://127.0.0.1:{tap.getsockname()[1]}", tls=client_context()) as client:
            client.replay("r").sample("q", 1)
        thread.join(10)
    assert seen[0][:2] == b"\x16\x03"
    assert b"hrl1" not in b"".join(seen)


def test_the_certificate_of_the_server_is_checked(replay):
    with hr.Server({"r": replay}, tls=server_context()) as server:
        with pytest.raises(
            hr.AuthenticationError, match="certificate of the peer is not accepted"
        ) as refused:
            hr.Client(server.address, tls=client_context(OTHER_AUTHORITY))
        cause = refused.value.__cause__
        while isinstance(cause, hr.AuthenticationError) and cause is not cause.__cause__:
            cause = cause.__cause__
        assert isinstance(cause, ssl.SSLCertVerificationError), "an error was its own cause"
        with pytest.raises(hr.AuthenticationError, match="localhost"):
            hr.Client(server.address.replace("127.0.0.1", "localhost"), tls=client_context())
        until(lambda: server.statistics().rejected_handshakes == 2)
        with hr.Client(server.address, tls=client_context()) as client:
            assert client.ping() > 0


@pytest.mark.parametrize("authority", [None, OTHER_AUTHORITY])
def test_a_client_without_the_right_certificate_is_refused(replay, authority):
    """AU3: mutual TLS."""
    with hr.Server({"r": replay}, tls=server_context(asks_clients=True)) as server:
        with pytest.raises(hr.AuthenticationError, match="does not accept the certificate"):
            hr.Client(server.address, tls=client_context(certificate_of=authority))
        until(lambda: server.statistics().rejected_handshakes == 1)
        with hr.Client(server.address, tls=client_context(certificate_of=AUTHORITY)) as client:
            assert client.statistics().connections == 1


def test_certificates_that_have_expired_are_refused(replay):
    """AU3: those of servers by the client, those of clients by the server, both with an error in time."""
    expired = LONG_AGO + dt.timedelta(days=1)
    with hr.Server({"r": replay}, tls=server_context(until=expired)) as server:
        with pytest.raises(hr.AuthenticationError, match="certificate has expired"):
            hr.Client(server.address, tls=client_context(), timeout=20)
        until(lambda: server.statistics().rejected_handshakes == 1)
    with hr.Server({"r": replay}, tls=server_context(asks_clients=True)) as server:
        with pytest.raises(hr.AuthenticationError, match="does not accept the certificate"):
            hr.Client(server.address, tls=client_context(certificate_of=AUTHORITY, until=expired), timeout=20)
        until(lambda: server.statistics().rejected_handshakes == 1)
        with hr.Client(server.address, tls=client_context(certificate_of=AUTHORITY)) as client:
            assert client.ping() > 0


def test_certificates_of_clients_protect_an_address_of_other_machines(replay):
    """SV3"""
    hr.Server({"r": replay}, address="tcp://0.0.0.0:0", tls=server_context(asks_clients=True))
    with pytest.raises(ValueError, match="CERT_REQUIRED"):
        hr.Server({"r": replay}, address="tcp://0.0.0.0:0", tls=server_context())


def test_tls_on_one_side_only_ends_at_once(replay):
    """AU3: an error on both sides."""
    with hr.Server({"r": replay}, tls=server_context()) as server:
        with pytest.raises(hr.Disconnected, match="pass tls= to hr.Client"):
            hr.Client(server.address)
        until(lambda: server.statistics().protocol_errors == 1)
    with hr.Server({"r": replay}) as server:
        with pytest.raises(hr.Disconnected, match="TLS on both sides"):
            hr.Client(server.address, tls=client_context())
        until(lambda: server.statistics().protocol_errors == 1)


def test_a_handshake_that_stops_halfway_holds_up_nobody(replay):
    with hr.Server({"r": replay}, tls=server_context()) as server:
        host, port = server.address.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"\x16\x03\x01\x02\x00\x01")
            with hr.Client(server.address, tls=client_context()) as client:
                assert client.ping() < 5
            began = time.monotonic()
            server.stop(drain_timeout=60)
            assert time.monotonic() - began < 8  # Its handshake would be late after 10 s.
            assert silent.recv(100) == b""


def test_a_unix_socket_beside_is_plain(replay, tmp_path):
    with hr.Server({"r": replay}, tls=server_context(), unix=tmp_path / "s") as server:
        for tls in (None, client_context()):
            with hr.Client(server.addresses[1], tls=tls) as client:
                assert client.ping() > 0


def test_contexts_are_checked(replay):
    with pytest.raises(TypeError, match="expected an ssl.SSLContext, got str"):
        hr.Server({"r": replay}, tls="cert.pem")
    with pytest.raises(ValueError, match="for a server"):
        hr.Server({"r": replay}, tls=client_context())
    with hr.Server({"r": replay}) as server:
        with pytest.raises(TypeError, match="expected an ssl.SSLContext, got bool"):
            hr.Client(server.address, tls=True)
        with pytest.raises(ValueError, match="for a client"):
            hr.Client(server.address, tls=server_context())
        assert server.statistics().connections_total == 0


def test_waits_end_when_the_server_stops(replay):
    """AK7 over TLS."""
    server = hr.Server({"r": replay}, tls=server_context()).start()
    with hr.Client(server.address, tls=client_context()) as client:
        client.replay("r").sample("q", 30)
        errors = []

        def wait():
            try:
                client.replay("r").sample("q", 1)
            except hr.Closed as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: replay.table("q").statistics().waiting_samples == 1)
        server.stop()
        thread.join(10)
        assert len(errors) == 1


def test_no_text_shows_the_token(replay):
    """AU4"""
    with hr.Server({"r": replay}, tls=server_context(), token="secret") as server:
        with hr.Client(server.address, tls=client_context(), token="secret") as client:
            shown = [server, client, client._session.access, server.statistics(), client.replay("r")]
            assert "secret" not in " ".join(map(repr, shown))
