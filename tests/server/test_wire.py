"""The page of the wire format: its handshake is that of a server and a client."""

import re
from pathlib import Path

import headrace as hr
from headrace.leases.frames import MOST_DESCRIPTORS
from headrace.server.limits import Limits
from headrace.server.messages import answers, handshake, requests
from tests.server.recorded import recorded_turns

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
    table = hr.Table.queue("fresh", 100)
    with (
        hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay,
        hr.Server({"r": replay}, token="secret") as server,
    ):
        return recorded_turns(server, "secret")[:4]


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
