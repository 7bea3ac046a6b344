"""server AU1, AU2: the token stays at home, a recorded session is worth nothing, and a server must prove itself too."""

import socket
import threading

import pytest

import headrace as hr
from headrace.leases.channel import Channel
from headrace.server.auth import NONCE_NBYTES, proof
from headrace.server.messages.handshake import Challenge, Greeting, Proof, ToServer, Welcome
from tests.server.hostile import connected
from tests.server.recorded import recorded_turns

TOKEN = "a token of these tests"


@pytest.fixture
def server():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        with hr.Server({"r": replay}, token=TOKEN) as server:
            yield server


def test_the_token_never_crosses_the_wire_and_a_recorded_session_is_refused(server):
    """AU1"""
    turns = recorded_turns(server, TOKEN)
    said = {each: b"".join(data for side, data in turns if side == each) for each in ("client", "server")}
    for data in said.values():
        assert len(data) > 100
        assert TOKEN.encode() not in data
    before = server.statistics()
    answer = b""
    with connected(server) as peer:
        peer.sendall(said["client"])
        while piece := peer.recv(1 << 16):
            answer += piece
    assert b"is not that of the server" in answer
    assert b"Welcome" not in answer
    after = server.statistics()
    assert after.rejected_handshakes == before.rejected_handshakes + 1
    assert after.connections_total == before.connections_total


def server_that_says(welcome):
    """Serves one handshake, with a welcome that `welcome` makes of both nonces and the client's proof."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listening.accept()
        channel = Channel(connection, ToServer)
        greeting = channel.receive().message
        assert isinstance(greeting, Greeting)
        channel.send(Challenge(nonce=bytes(NONCE_NBYTES), needs_token=True))
        given = channel.receive().message
        assert isinstance(given, Proof)
        mac = welcome(greeting.nonce, bytes(NONCE_NBYTES), given.mac)
        channel.send(Welcome(mac=mac, version="1", in_place=False, served={}))
        connection.recv(1 << 16)
        channel.close()
        listening.close()

    thread = threading.Thread(target=answer)
    thread.start()
    return f"tcp://127.0.0.1:{listening.getsockname()[1]}", thread


@pytest.mark.parametrize(
    "welcome",
    [
        lambda *_: b"",
        lambda one, other, given: given,  # The client's own proof, sent back.
        lambda one, other, given: proof(b"another", "server", one, other),
        lambda one, other, given: proof(TOKEN.encode(), "client", one, other),
        lambda one, other, given: proof(
            TOKEN.encode(), "server", bytes(NONCE_NBYTES), other
        ),  # Of another session.
    ],
)
def test_a_server_that_cannot_prove_the_token_is_refused(welcome):
    """AU1, AU2"""
    address, thread = server_that_says(welcome)
    with pytest.raises(hr.AuthenticationError, match="cannot prove that it knows the token"):
        hr.Client(address, token=TOKEN, timeout=10)
    thread.join(10)


def test_a_server_that_proves_the_token_is_taken():
    """The server of the test before, with the right proof."""
    address, thread = server_that_says(lambda one, other, _: proof(TOKEN.encode(), "server", one, other))
    hr.Client(address, token=TOKEN, timeout=10).close()
    thread.join(10)
