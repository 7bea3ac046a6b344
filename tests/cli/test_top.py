"""`headrace top`."""

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

import click
import pytest
import trustme
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.top import remote, run
from headrace.cli.top.run import watch
from headrace.cli.top.screen import screen, short
from tests.server.certificates import AUTHORITY, LONG_AGO, server_context

SIGNATURE = hr.Signature.like({"x": 0})


@pytest.fixture
def monitor():
    limited = hr.Table(
        "limited\x1b[31m",
        sampler=hr.selectors.Fifo(),
        remover=hr.selectors.Fifo(),
        max_size=100,
        rate_limiter=hr.rate_limiters.MinSize(50),
    )
    with hr.Replay(SIGNATURE, [hr.Table.queue("q", 3), limited], capacity=640) as replay:
        with replay.writer(items=[hr.ItemRule("limited\x1b[31m", 1)]) as writer:
            for x in range(8):
                writer.append({"x": x})
        writer = replay.writer()
        for x in range(5):
            writer.append({"x": x})
            writer.create_item("q", 1)
        with hr.monitor.serve(replay) as monitor:
            yield monitor
        replay.sample("q", 3)
        writer.close()


def top(*arguments, **environment):
    return CliRunner().invoke(main, ["top", *arguments], env=environment)


def test_the_numbers_of_each_table(monitor):
    result = top(monitor.url, "--once")
    assert result.exit_code == 0
    q = next(line for line in result.output.splitlines() if line.startswith("  q"))
    assert re.split(r"\s{2,}", q.strip())[:3] == ["q", "3", "3"]
    assert "3 in 0..3" in q
    assert "2 inserts" in q
    assert "42 items to go" in result.output
    assert (
        result.output.startswith("replay: 13 of 640 rows, 0.0 MiB") or "rows" in result.output.splitlines()[0]
    )


def test_names_cannot_steer_the_terminal(monitor):
    assert "limited\\x1b[31m" in top(monitor.url, "--once").output


def test_without_a_terminal_it_prints_once(monitor):
    assert "items to go" in top(monitor.url.removeprefix("http://")).output


def strict_json(text):
    """Refuses what Python writes for numbers that are not finite, which is no JSON."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_json_is_the_record(monitor):
    result = top(monitor.url, "--json")
    assert strict_json(result.output)["replays"]["replay"]["tables"]["q"]["pending_inserts"] == 2


def test_nothing_at_the_address():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    result = top(f"127.0.0.1:{port}", "--once")
    assert result.exit_code == 1
    assert f"http://127.0.0.1:{port} does not answer: " in result.output


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "unix://", "http://", "ftp://a"])
def test_other_addresses_are_wrong_use(address):
    result = top(address)
    assert (result.exit_code, "expected" in result.output) == (2, True)


def test_the_address_of_a_server_without_its_scheme():
    step = {"x": 0.0}
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("q", 9)]) as replay:
        with hr.Server({"replay": replay}, address="tcp://127.0.0.1:0") as server:
            result = top(server.address.removeprefix("tcp://"), "--once")
    assert result.exit_code == 1
    assert "is not a live page; the address of a server begins with tcp:// or unix://" in result.output


def test_another_web_server(monitor):
    result = top(f"{monitor.url}api", "--once")
    assert (result.exit_code, "is no live page of Headrace (404)" in result.output) == (1, True)


@pytest.mark.parametrize("body", [b'{"replays": {}}', b"[]", b"{" * 100_000, b"\x1b[2J"])
def test_a_page_of_another_program_or_version(body):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_server(("127.0.0.1", 0)) as other:

        def serve():
            connection, _ = other.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        result = top(f"127.0.0.1:{other.getsockname()[1]}", "--once")
        thread.join()
    assert (result.exit_code, "is no live page of Headrace (200)" in result.output) == (1, True)
    assert "\x1b" not in result.output


def test_the_token_comes_from_the_environment():
    with (
        hr.Replay(SIGNATURE, [hr.Table.queue("q", 3)]) as replay,
        hr.monitor.serve(replay, token="s3cret") as monitor,
    ):
        refused = top(monitor.url, "--once")
        assert (refused.exit_code, "set HEADRACE_TOKEN" in refused.output) == (1, True)
        assert top(monitor.url, "--once", HEADRACE_TOKEN="s3cret").exit_code == 0


# ---- servers -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tcp", "unix"])
def server(request, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "SECONDS_BETWEEN_SAMPLES", 0.01)
    address = {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}
    with (
        hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay,
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"r": replay, "q\x1b[31m": queue}, token="s3cret", **address) as server,
    ):
        queue.send({"x": 1})
        yield server


def test_a_server(server):
    result = top(server.address, "--once", HEADRACE_TOKEN="s3cret")
    assert result.exit_code == 0, result.output
    lines = [re.split(r"\s{2,}", line.strip()) for line in result.output.splitlines()]
    assert lines[0][0].startswith("server: version ")
    assert ["clients", "1 now, 1 ever"] in lines
    assert ["checkpoints", "no directory"] in lines
    assert ["t", "0", "3", "0", "0", "0/1", "1 items to go", "-"] in lines
    assert ["q\\x1b[31m", "1", "0", "0", "0", "0", "0"] in lines
    told = json.loads(top(server.address, "--json", HEADRACE_TOKEN="s3cret").output)
    assert told["replays"]["r"]["columns"] == {"x": "int64[]"}
    assert told["server"]["connections_total"] == 2


def test_bounds_that_are_not_finite_are_null():
    with (
        hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.uniform(9)]) as replay,
        hr.Server({"r": replay}) as server,
    ):
        told = strict_json(top(server.address, "--json").output)
    assert told["replays"]["r"]["tables"]["replay"]["max_diff"] is None


def test_the_checkpoints_of_a_server(tmp_path):
    with (
        hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.uniform(9)]) as replay,
        hr.Server({"r": replay}, checkpoint=tmp_path) as server,
    ):
        assert "checkpoints  0 saved, 0 failed\n" in top(server.address, "--once").output
        server.checkpoint()
        assert re.search(
            r"checkpoints  1 saved, 0 failed, newest .* s ago, took .* s\n",
            top(server.address, "--once").output,
        )


def test_the_token_of_a_server_comes_from_the_environment(server):
    refused = top(server.address, "--once", HEADRACE_TOKEN=None)
    assert (refused.exit_code, "Set HEADRACE_TOKEN to the token of the server" in refused.output) == (1, True)
    with hr.BatchQueue({"x": 0}, 2) as queue, hr.Server({"q": queue}) as without:
        refused = top(without.address, "--once", HEADRACE_TOKEN="s3cret")
    assert (refused.exit_code, "or unset it for a server without one" in refused.output) == (1, True)


def another_authority(folder):
    """Returns the file of an authority that signed no certificate of a server."""
    path = folder / "other.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def test_a_server_with_tls(tmp_path):
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "none.pem").write_text("nothing")
    with (
        hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay,
        hr.Server({"r": replay}, tls=server_context()) as server,
    ):
        assert top(server.address, "--once", "--ca", str(tmp_path / "ca.pem")).exit_code == 0
        done = top(server.address, "--once", "--ca", str(tmp_path / "none.pem"))
        assert (done.exit_code, "expected a PEM file" in done.output) == (2, True)
        done = top(server.address, "--once", "--ca", str(another_authority(tmp_path)), HEADRACE_TOKEN=None)
        assert (done.exit_code, "Pass --ca with" in done.output, "TOKEN" in done.output) == (1, True, False)
        done = top("127.0.0.1:8080", "--ca", str(tmp_path / "ca.pem"))
        assert (done.exit_code, "expected the address of a server" in done.output) == (2, True)


def test_a_server_that_asks_clients_for_certificates(tmp_path):
    """AU3: mutual TLS."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = AUTHORITY.issue_cert("watcher@example.org", not_before=LONG_AGO)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    ca, both, key, certificate = (
        str(tmp_path / f"{name}.pem") for name in ("ca", "both", "key", "certificate")
    )
    with (
        hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay,
        hr.Server({"r": replay}, tls=server_context(asks_clients=True)) as server,
    ):
        asked = (server.address, "--once", "--ca", ca)
        done = top(*asked, HEADRACE_TOKEN=None)
        assert (done.exit_code, "Pass --certificate" in done.output, "--ca" in done.output) == (
            1,
            True,
            False,
        )
        assert top(*asked, "--certificate", both).exit_code == 0
        assert top(*asked, "--certificate", certificate, "--key", key).exit_code == 0
        done = top(*asked, "--certificate", certificate)
        assert (done.exit_code, "a certificate and of its key" in done.output) == (2, True)
        done = top(*asked, "--key", key)
        assert (done.exit_code, "pass --certificate" in done.output) == (2, True)
        done = top("127.0.0.1:8080", "--certificate", both)
        assert (done.exit_code, "expected the address of a server" in done.output) == (2, True)


def test_a_server_that_is_gone(server, monkeypatch):
    monkeypatch.setenv("HEADRACE_TOKEN", "s3cret")
    with remote.RemoteServer(server.address, wait=lambda _: server.stop()) as source:
        with pytest.raises(click.ClickException, match=" does not answer: "):
            source.read()
    gone = top(source.address)
    assert gone.exit_code == 1
    assert "Disconnected" in gone.output


def test_a_server_that_is_gone_is_told_at_once(server, monkeypatch):
    """It was asked again for the ten seconds of a call, with the old numbers on the screen."""
    monkeypatch.setenv("HEADRACE_TOKEN", "s3cret")
    with remote.RemoteServer(server.address, wait=lambda _: None) as source:
        source.read()
        server.stop()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(click.ClickException, match=" does not answer: "):
                source.read()
            assert time.monotonic() - began < 8  # It took 10 s.


def test_a_lost_connection_to_a_server_is_made_again(server, monkeypatch):
    monkeypatch.setenv("HEADRACE_TOKEN", "s3cret")
    with remote.RemoteServer(server.address, wait=lambda _: None) as source:
        source.read()
        source._client._session.link()._channel.shutdown()
        assert source.read()["server"]["connections"] >= 1


# ---- drawing in place ----------------------------------------------------------------------------------------------


def record(size):
    table = {
        "name": "t", "size": size, "max_size": 10, "samples_per_insert_so_far": 0.5, "samples_per_insert": None,
        "min_diff": None, "max_diff": None, "pending_inserts": 0, "waiting_samples": 1, "longest_waiting_insert": 0.0,
        "longest_waiting_sample": 2.0, "gate": {"difference": 0, "is_bounded": False, "items_missing": 0},
        "rates": {"now": None},
    }  # fmt: skip
    replay = {"state": "closed", "store": None, "tables": {"t": table}}
    return {
        "replays": {"r": replay},
        "queues": {},
        "server": None,
        "collector": None,
        "recorded_seconds": 1.0,
    }


def test_it_draws_in_place_and_outlives_a_page_that_is_gone():
    answers = iter([record(1), click.ClickException("gone"), record(2)])
    waits = []

    def read():
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer

    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(read, "http://a", 0.5, stream, wait=waits.append)
    first, second, third = stream.getvalue().split("\x1b[H")[1:]
    assert waits == [0.5] * 3
    assert "\n  t      1      10" in re.sub(r"\x1b\[K", "", first)
    assert second.startswith("gone  (the last numbers; asking again)\x1b[K\n")
    assert "  t      1" in second
    assert "  t      2" in third
    assert stream.getvalue().endswith("\x1b[?25h")


def test_a_terminal_that_is_too_low_tells_how_much_it_does_not_show(monkeypatch):
    tables = {
        f"t{number}": {**record(1)["replays"]["r"]["tables"]["t"], "name": f"t{number}"}
        for number in range(9)
    }
    found = {**record(1), "replays": {"r": {"state": "open", "store": None, "tables": tables}}}
    monkeypatch.setattr(run, "_rows", lambda _: 9)
    answers = iter([found, KeyboardInterrupt()])

    def read():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(read, "http://a", 1, stream, wait=lambda _: None)
    shown = re.sub(r"\x1b\[\??\d*[A-Za-z]", "", stream.getvalue()).splitlines()
    # Of nine lines the last is left free. Above: the address, an empty line, the title, the header and three tables.
    assert len(shown) == 8
    assert shown[-2].split()[0] == "t2"
    assert shown[-1] == "6 more lines: a higher terminal shows them, or --once"


def test_a_line_fits_a_terminal_of_80_columns():
    found = record(99_999)
    found["replays"]["r"]["tables"]["t"].update(
        name="prioritized", max_size=1e6, min_diff=0, max_diff=3200, samples_per_insert=8,
        samples_per_insert_so_far=7.99,
        gate={"difference": 48, "is_bounded": True, "items_missing": 0}, longest_waiting_sample=51.2,
        rates={"now": {"inserts": 46.8, "samples": 376}},
    )  # fmt: skip
    assert len([*screen(found, 80)]) == 4


def test_a_record_with_a_collector():
    worker = {"worker_idx": 0, "pid": 77, "alive": False, "frames": 12_345, "rollouts": 2, "restarts": 1,
              "policy_version": 3, "last_step_age": None, "last_error": "boom"}  # fmt: skip
    collector = {"frames": 5, "frames_per_second": 2.5, "episodes": 0, "episode_return_mean": None,
                 "episode_length_mean": None, "lag_min": 0, "lag_max": 2, "lag_mean": 0.25, "frames_discarded": 0,
                 "restarts": 1, "workers": [worker]}  # fmt: skip
    text = click.unstyle("\n".join(screen({**record(1), "collector": collector}, None)))
    assert "0 to 2, mean 0.25 versions" in text
    assert re.search(r"\n\s+0\s+dead\s+12\.3k\s+1\s+3\s+-\s+boom", text)
    assert "r  [closed]" in text
    assert "1 sample 2.0 s" in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_terminal_is_drawn_until_a_signal_and_has_its_cursor_again(monitor, number, code):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (30, 140))
    arguments = [sys.executable, "-m", "headrace", "top", monitor.url, "--interval", "0.1"]
    process = subprocess.Popen(
        arguments, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    guard = threading.Timer(50, process.kill)
    guard.start()
    try:
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(leader, 4096)
        process.send_signal(number)
        # Read to the end, so that the last writes do not block.
        try:
            while news := os.read(leader, 4096):
                seen += news
        except OSError:
            pass
        assert process.wait(20) == code
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        os.close(leader)
    assert b"42 items to go" in seen
    assert seen.rstrip().endswith(b"\x1b[?25h")
    assert b"Traceback" not in seen


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9999, "9999"),
        (10_000, "10.0k"),
        (999_999, "1000k"),
        (0.123, "0.12"),
        (123.4, "123"),
        (-5, "-5"),
        (5e15, "5000T"),
    ],
)
def test_numbers(value, text):
    assert short(value) == text
