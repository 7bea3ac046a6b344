"""The page of the wire format: its handshake is that of a server and a client."""

import re
import socket
import threading
from pathlib import Path

import headrace as hr
from headrace.leases.frames import MOST_DESCRIPTORS
from headrace.server.limits import Limits
from headrace.server.messages import answers, handshake, requests

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"


def dump(data):
    """Returns bytes in hex, 16 a line, with their characters."""
    lines = []
    for first in range(0, len(data), 16):
        some = data[first : first + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{first:04x}  {some.hex(' '):<47}  {text}")
    return "\n".join(lines) + "\n"


def recorded_handshake(monkeypatch):
    """Returns what each side of a handshake sends, in turn: client, server, client, server."""
    nonces = {"client": bytes(range(32)), "server": bytes(range(32, 64))}
    monkeypatch.setattr("headrace.server.client.connecting.new_nonce", lambda: nonces["client"])
    monkeypatch.setattr("headrace.server.serving.handshake.new_nonce", lambda: nonces["server"])
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.0.0")
    turns = []

    def copy(source, destination, side):
        while data := source.recv(1 << 16):
            if turns and turns[-1][0] == side:
                turns[-1][1].extend(data)
            else:
                turns.append((side, bytearray(data)))
            destination.sendall(data)
        destination.shutdown(socket.SHUT_WR)

    table = hr.Table.queue("fresh", 100)
    with (
        hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay,
        socket.create_server(("127.0.0.1", 0)) as tap,
    ):
        with hr.Server({"r": replay}, token="secret") as server:

            def forward():
                one, _ = tap.accept()
                host, port = server.address.removeprefix("tcp://").split(":")
                with one, socket.create_connection((host, int(port))) as other:
                    back = threading.Thread(target=copy, args=(other, one, "server"))
                    back.start()
                    copy(one, other, "client")
                    back.join()

            thread = threading.Thread(target=forward)
            thread.start()
            hr.Client(f"tcp://127.0.0.1:{tap.getsockname()[1]}", token="secret").close()
            thread.join(10)
    return [(side, bytes(data)) for side, data in turns[:4]]


def test_the_handshake_of_the_page_is_that_of_the_program(monkeypatch):
    """WI1"""
    turns = recorded_handshake(monkeypatch)
    assert [side for side, _ in turns] == ["client", "server", "client", "server"]
    page = PAGE.read_text()
    # The right side is what the page has to show.
    assert re.findall(r"```\n(0000  .*?)```", page, re.DOTALL) == [dump(data) for _, data in turns]


def test_the_page_names_the_limits_of_the_program():
    """WI2"""
    page = " ".join(PAGE.read_text().split())
    assert handshake.LARGEST_NBYTES == 64 << 10
    assert "64 KiB" in page
    assert requests.LARGEST_NBYTES == 1 << 20
    assert "1 MiB" in page
    assert Limits().payload_nbytes == 1 << 30
    assert "1 GiB" in page
    assert answers.LARGEST_NBYTES == 16 << 20
    assert "16 MiB" in page
    assert MOST_DESCRIPTORS == 4
