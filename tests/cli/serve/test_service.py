"""`headrace serve` from its start to its end: checkpoints, signals, page."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import click
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization

import headrace as hr
from headrace.cli import main
from headrace.cli.serve import run
from headrace.cli.serve.service import Service
from headrace.cli.serve.settings import read_settings
from headrace.errors import CheckpointError
from tests.server.certificates import AUTHORITY, client_context

SIGNATURE = hr.Signature.like({"x": 0})
CONFIG = """
address = "tcp://127.0.0.1:0"
unix = "s.sock"
token = { environment = "HEADRACE_TOKEN" }

[checkpoint]
directory = "saved"
keep = 2
load_newest = true

[replays.r]
capacity = 100
[replays.r.signature]
x = { dtype = "int64" }
[replays.r.tables.t]
sampler = { kind = "Fifo" }
remover = { kind = "Fifo" }
max_size = 50

[queues.q]
batch_size = 2
signature = { x = { dtype = "int64" } }
"""


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("HEADRACE_TOKEN", "s3cret")


@pytest.fixture
def settings(tmp_path):
    def reading(text=CONFIG):
        path = tmp_path / "s.toml"
        path.write_text(text)
        return read_settings(path)

    return reading


def save(folder, values, signature=SIGNATURE):
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=100)
    with hr.Replay(signature, [table]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for x in values:
                writer.append({"x": x})
        folder.mkdir(parents=True, exist_ok=True)
        return replay.save(folder)


def saved_items(folder):
    found = []
    with hr.Replay.load(folder) as replay:
        while len(replay.table("t")):
            oldest = replay.sample("t", 1, timeout=0)
            found += oldest.data["x"].tolist()
            replay.delete("t", oldest.info.keys)
    return found


def serve(settings, during, waits=()):
    """Runs a service; `during(ready)` is called while it serves, and `waits` are the first answers of its waits."""
    answers, asked = iter([*waits, True]), []

    def wait(seconds):
        asked.append(seconds)
        return next(answers)

    with Service(settings) as service:
        service.run(during, wait)
    return asked


def test_the_newest_checkpoint_is_served_with_the_settings_of_the_file(settings, tmp_path):
    save(tmp_path / "saved" / "r", [1])
    save(tmp_path / "saved" / "r", [4, 5, 6])
    seen = []

    def during(ready):
        for address in ready.addresses:
            with hr.Client(address, token="s3cret") as client:
                table = client.replay("r").table("t").statistics()
                seen.append((table.size, table.max_size, sorted(client.statistics().served)))
        with pytest.raises(hr.AuthenticationError):
            hr.Client(ready.addresses[0])

    assert serve(settings(), during) == [None]
    assert seen == [(3, 50, ["q", "r"])] * 2
    assert saved_items(tmp_path / "saved" / "r") == [4, 5, 6]
    assert len(list((tmp_path / "saved" / "r").iterdir())) == 2  # keep


def test_it_saves_by_the_clock_and_at_the_end(settings, tmp_path):
    scheduled = settings(CONFIG.replace("keep = 2", "every_seconds = 30").replace("load_newest = true", ""))
    save(tmp_path / "saved" / "r", [1])
    sizes = []

    def during(ready):
        with hr.Client(ready.addresses[0], token="s3cret") as client:
            sizes.append(len(client.replay("r").table("t")))

    assert serve(scheduled, during, [False, False]) == [30.0] * 3
    assert sizes == [0]  # It was not asked to load.
    assert len(list((tmp_path / "saved" / "r").iterdir())) == 1 + 3


def test_without_checkpoints_nothing_is_written(settings, tmp_path):
    text = CONFIG.replace('[checkpoint]\ndirectory = "saved"\nkeep = 2\nload_newest = true\n', "")
    assert serve(settings(text), lambda ready: None) == [None]
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_a_save_that_fails_is_told_and_the_service_goes_on(settings, tmp_path, caplog):
    scheduled = settings(CONFIG.replace("keep = 2", "every_seconds = 30"))
    in_the_way = tmp_path / "saved" / "r"

    def during(ready):
        in_the_way.write_text("a file")

    with pytest.raises(CheckpointError, match="could not save 'r' to .*saved/r: "):
        serve(scheduled, during, [False])
    assert len([each for each in caplog.messages if each.startswith("could not save 'r' to ")]) == 2


def test_a_directory_that_cannot_be_saved_to_is_found_at_the_start(settings, tmp_path, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setattr(os, "access", lambda *_: False)  # Root may write anywhere.
        with pytest.raises(PermissionError, match="checkpoints cannot be saved there"):
            serve(settings(), pytest.fail)
    (tmp_path / "saved").rmdir()
    (tmp_path / "saved").write_text("a file")
    with pytest.raises(FileExistsError):
        serve(settings(), pytest.fail)


def test_a_capacity_that_has_no_effect_is_told(settings, tmp_path, caplog):
    save(tmp_path / "saved" / "r", [1])
    serve(settings(), lambda ready: None)
    assert "its checkpoint: any number of steps; capacity = 100 has no effect" in caplog.text
    caplog.clear()
    serve(settings(CONFIG.replace("capacity = 100", "")), lambda ready: None)
    assert "capacity" not in caplog.text


def test_a_replay_with_a_path_keeps_its_own_items(settings, tmp_path):
    text = CONFIG.replace("[replays.r]", '[replays.r]\npath = "store"')
    save(tmp_path / "saved" / "r", [1])
    serve(settings(text), lambda ready: None)
    assert (tmp_path / "store").is_dir()
    assert saved_items(tmp_path / "saved" / "r") == []


def test_checkpoints_that_cannot_be_loaded_are_refused(settings, tmp_path):
    saved = save(tmp_path / "saved" / "r", [1.5], hr.Signature.like({"x": 0.0}))
    with pytest.raises(CheckpointError, match=r"another signature: x: expected int64\[\], got float64\[\]"):
        serve(settings(), pytest.fail)
    for file in saved.iterdir():
        file.write_bytes(b"")
    with pytest.raises(CheckpointError), pytest.warns(UserWarning, match="checkpoint-000000000001"):
        serve(settings(), pytest.fail)


TLS = """
[tls]
certificate = "server.pem"
key = "server.key"
client_authorities = "ca.pem"
"""


def write_certificates(folder):
    AUTHORITY.cert_pem.write_to_path(folder / "ca.pem")
    issued = AUTHORITY.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "server.key")
    for part in issued.cert_chain_pems:
        part.write_to_path(folder / "server.pem", append=True)


def test_tls_with_certificates_of_clients(settings, tmp_path):
    write_certificates(tmp_path)
    names = []

    def during(ready):
        with hr.Client(
            ready.addresses[0], token="s3cret", tls=client_context(certificate_of=AUTHORITY)
        ) as client:
            names.extend(client.statistics().served)
        with pytest.raises(hr.HeadraceError):
            hr.Client(ready.addresses[0], token="s3cret", tls=client_context()).ping()

    serve(settings(CONFIG + TLS), during)
    assert names == ["r", "q"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("server.pem", b"", "tls.certificate: expected PEM files"),
        ("server.key", None, "tls.certificate: expected PEM files"),
        ("server.key", "with a pass phrase", "tls.certificate: expected PEM files"),
        ("ca.pem", b"nothing", "tls.client_authorities: expected a PEM file"),
        ("ca.pem", None, "tls.client_authorities: expected a PEM file"),
    ],
)
def test_certificates_that_cannot_be_used(settings, tmp_path, file, content, message):
    write_certificates(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    elif isinstance(content, bytes):
        (tmp_path / file).write_bytes(content)
    else:
        key = serialization.load_pem_private_key((tmp_path / file).read_bytes(), None)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (tmp_path / file).write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"x")))
    with pytest.raises(click.BadParameter, match=message):
        settings(CONFIG + TLS)


def test_the_page(settings):
    text = CONFIG.replace(
        "[replays.r]", '[page]\nport = 0\ntoken = { environment = "HEADRACE_TOKEN" }\n[replays.r]', 1
    )
    found = []

    def during(ready):
        request = urllib.request.Request(
            f"{ready.page}api/statistics", headers={"Authorization": "Bearer s3cret"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            found.append(json.load(answer))

    serve(settings(text), during)
    assert found[0]["replays"]["r"]["tables"]["t"]["max_size"] == 50


def test_a_start_that_fails_saves_nothing(settings, tmp_path):
    """A restart again and again must not replace the checkpoints that are kept."""
    saved = save(tmp_path / "saved" / "r", [1])
    with socket.create_server(("127.0.0.1", 0)) as in_use:
        port = in_use.getsockname()[1]
        with pytest.raises(OSError):
            serve(settings(CONFIG.replace("[queues.q]", f"[page]\nport = {port}\n[queues.q]")), pytest.fail)
        with pytest.raises(OSError):
            serve(settings(CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{port}")), pytest.fail)
    assert list((tmp_path / "saved" / "r").iterdir()) == [saved]


# ---- the command ---------------------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(main, ["serve", *map(str, arguments)])


def test_errors_have_public_names(settings, tmp_path):
    save(tmp_path / "saved" / "r", [1])
    settings(CONFIG.replace("tables.t]", "tables.other]"))
    done = command(tmp_path / "s.toml")
    assert done.exit_code == 1
    assert "Error: CheckpointError: " in done.output
    assert "expected tables of the names saved, t, got other" in done.output


def test_check_starts_nothing(settings, tmp_path):
    settings(
        CONFIG.replace("[replays.r]", '[replays.r]\npath = "store"').replace("127.0.0.1:0", "no.invalid:9")
    )
    done = command(tmp_path / "s.toml", "--check")
    assert done.exit_code == 0
    assert done.output.startswith(
        f"{tmp_path / 's.toml'}: no mistake found in the settings, tokens and certificates "
    )
    assert "no host was looked up" in done.output
    assert json.loads(command(tmp_path / "s.toml", "--check", "--json").output)["ok"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('token = { environment = "HEADRACE_TOKEN" }', "", "s.toml:2: address: other machines reach tcp://0.0.0.0:1"),
        ("batch_size = 2", "batch_size = 0", "s.toml:21: queues.q.batch_size: expected "),
        ("batch_size = 2", "batch_size = 1_000_000_000_000", "s.toml:20: queues.q: expected batches that fit into "),
        ("capacity = 100", "capacity = 0", "s.toml:12: replays.r.capacity: expected "),
        ("capacity = 100", "seed = -1", "s.toml:12: replays.r.seed: expected an integer >= 0, got -1"),
        ("[replays.r", '[replays.".."', "s.toml:11: replays...: served: '..' cannot be the name of a folder"),
        (
            '[replays.r.signature]\nx = { dtype = "int64" }',
            '[replays.r.signature]\nx = { dtype = "int64", shape = [1_000_000, 1_000_000] }',
            "s.toml:11: replays.r: the store cannot grow",
        ),
    ],
)  # fmt: skip
def test_check_finds_settings_that_do_not_fit_together(tmp_path, old, new, message):
    (tmp_path / "s.toml").write_text(CONFIG.replace("127.0.0.1:0", "0.0.0.0:1").replace(old, new))
    done = command(tmp_path / "s.toml", "--check")
    assert done.exit_code == 2
    assert message in done.output


def test_an_address_for_strangers_is_refused_in_words_of_the_file(tmp_path):
    """SV3: the error names both remedies, as they are written in the file."""
    text = CONFIG.replace("127.0.0.1:0", "0.0.0.0:1").replace(
        'token = { environment = "HEADRACE_TOKEN" }', ""
    )
    (tmp_path / "s.toml").write_text(text)
    message = command(tmp_path / "s.toml", "--check").output
    for remedy in ('token = { environment = "NAME" }', "client_authorities to [tls]", "insecure = true"):
        assert remedy in message
    (tmp_path / "s.toml").write_text("insecure = true\n" + text)
    with pytest.warns(UserWarning, match="open to everyone"):
        assert command(tmp_path / "s.toml", "--check").exit_code == 0


def test_warnings_are_lines_of_the_log_without_lines_of_the_source(tmp_path):
    text = CONFIG.replace("127.0.0.1:0", "0.0.0.0:1").replace(
        'token = { environment = "HEADRACE_TOKEN" }', ""
    )
    (tmp_path / "s.toml").write_text("insecure = true\n" + text)
    arguments = [sys.executable, "-m", "headrace", "serve", str(tmp_path / "s.toml"), "--check"]
    log = subprocess.run(arguments, capture_output=True, text=True, timeout=50, check=True).stderr
    assert re.fullmatch(
        r"\S+ \S+ WARNING tcp://0\.0\.0\.0:1 is open to everyone who reaches this machine\s+", log
    )


@pytest.mark.parametrize("options", [["--check"], []])
def test_a_page_needs_the_extra(tmp_path, monkeypatch, options):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    (tmp_path / "s.toml").write_text(f"{CONFIG}\n[page]\n")
    done = command(tmp_path / "s.toml", *options)
    assert done.exit_code == 2
    assert 's.toml:24: page: hr.monitor.serve needs uvicorn: pip install "headrace[server]"' in done.output


def test_an_address_in_use_is_a_failure(settings, tmp_path):
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 9)]) as replay, hr.Server({"r": replay}) as server:
        settings(CONFIG.replace("tcp://127.0.0.1:0", server.address))
        done = command(tmp_path / "s.toml")
    assert done.exit_code == 1
    assert "cannot serve" in done.output


def test_the_first_signal_ends_the_wait_and_the_second_has_its_usual_effect():
    before = signal.getsignal(signal.SIGTERM)
    with run._told_by_signals() as stop:
        assert stop.wait(0.0) is False
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(None) is True
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_from_its_ready_line_to_sigterm(settings, tmp_path):
    settings()
    save(tmp_path / "saved" / "r", [7, 8])
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "serve", str(tmp_path / "s.toml"), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    watchdog = threading.Timer(50, process.kill)
    watchdog.start()
    try:
        ready = json.loads(process.stdout.readline())
        with hr.Client(ready["addresses"][0], token=os.environ["HEADRACE_TOKEN"]) as client:
            batch = client.replay("r").sample("t", 1, timeout=10)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    assert batch.data["x"].tolist() == [7]
    assert process.returncode == 0
    assert f"INFO saved to {tmp_path / 'saved'}" in log
    assert "s3cret" not in log
    assert [path.name for path in sorted((tmp_path / "saved" / "r").iterdir())] == [
        "checkpoint-000000000001",
        "checkpoint-000000000002",
    ]


def test_bad_settings_are_wrong_use(tmp_path):
    done = command(tmp_path / "none.toml")
    assert done.exit_code == 2
    assert "expected a TOML file" in done.output
    assert isinstance(done.exception, SystemExit)
    with pytest.raises(click.BadParameter):
        read_settings(tmp_path / "none.toml")
