"""The file of `headrace serve`: every form, and every mistake with its file, line and key."""

from pathlib import Path

import click
import numpy as np
import pytest

import headrace as hr
from headrace.cli.serve.settings import read_settings

WHOLE = """
address = "tcp://127.0.0.1:0"
unix = "run/s.sock"
drain_timeout = 2
token = { file = "secret" }

[checkpoint]
directory = "saved"
every_seconds = 600
keep = 3
load_newest = true

[limits]
connections = 100
handshake_timeout = 5

[page]
port = 0
token = { environment = "PAGE_TOKEN" }

[replays.robot]
capacity = 1_000
path = "store"
seed = 7

[replays.robot.signature]
observation.camera = { shape = [8, 8], dtype = "uint8" }
observation.joints = [{ dtype = "float32" }, { shape = 3, dtype = "float64" }]
action = { dtype = "int64" }

[replays.robot.tables.prioritized]
sampler = { kind = "Prioritized", priority_exponent = 0.6 }
remover = { kind = "Fifo" }
max_size = 500
new_priority = "largest"
rate_limiter.kind = "SampleToInsertRatio"
rate_limiter.samples_per_insert = 8
rate_limiter.min_size_to_sample = 10
rate_limiter.error_buffer = [0, 160]

[replays.robot.tables.distinct]
sampler = { kind = "Uniform", replacement = false }
remover = { kind = "MinHeap" }
max_size = 500
rate_limiter = { kind = "MinSize", n = 20 }

[replays.robot.tables.queue]
sampler = { kind = "Fifo" }
remover = { kind = "Fifo" }
max_size = 64
max_times_sampled = 1
rate_limiter = { kind = "Queue", n = 64 }

[replays.robot.tables.stack]
sampler = { kind = "Lifo" }
remover = { kind = "Lifo" }
max_size = 9
max_times_sampled = 1
rate_limiter = { kind = "Stack", n = 9 }

[replays.robot.tables.plain]
sampler = { kind = "MaxHeap" }
remover = { kind = "Fifo" }
max_size = 5

[queues.samples]
batch_size = 32
signature = { dtype = "float32", shape = [2] }
"""
SMALL = """
address = "tcp://127.0.0.1:9000"
[replays.r]
capacity = 10
[replays.r.signature]
x = { dtype = "int64" }
[replays.r.tables.t]
sampler = { kind = "Uniform" }
remover = { kind = "Fifo" }
max_size = 5
"""


@pytest.fixture
def read(tmp_path):
    def reading(text):
        path = tmp_path / "s.toml"
        path.write_text(text)
        return read_settings(path)

    return reading


def test_paths_that_clients_are_told_hold_in_every_folder(read, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("s3cret")
    monkeypatch.setenv("PAGE_TOKEN", "other")
    monkeypatch.chdir(tmp_path)
    read(WHOLE)
    found = read_settings(Path("s.toml"))
    assert found.unix == tmp_path / "run/s.sock"
    assert found.checkpoint.directory == str(tmp_path / "saved")


def test_every_form(read, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(" s3cret\n")
    monkeypatch.setenv("PAGE_TOKEN", "other")
    found = read(WHOLE)
    assert (found.address, found.unix) == ("tcp://127.0.0.1:0", tmp_path / "run/s.sock")
    assert (found.drain_timeout, found.insecure) == (2.0, False)
    assert (found.token, found.page_token) == ("s3cret", "other")
    assert "s3cret" not in repr(found)
    assert "other" not in repr(found)
    assert (found.checkpoint.directory, found.checkpoint.every_seconds) == (str(tmp_path / "saved"), 600.0)
    assert (found.checkpoint.keep, found.checkpoint.load_newest) == (3, True)
    assert (found.page.host, found.page.port) == ("127.0.0.1", 0)
    assert found.limits == hr.server.Limits(connections=100, handshake_timeout=5.0)
    robot = found.replays["robot"]
    assert (robot.capacity, robot.path, robot.seed) == (1000, tmp_path / "store", 7)
    joints = (np.float32(0), np.zeros(3))
    assert robot.signature == hr.Signature.like(
        {"observation": {"camera": np.zeros((8, 8), np.uint8), "joints": joints}, "action": 0}
    )
    selectors, limiters = hr.selectors, hr.rate_limiters
    assert robot.tables == (
        hr.Table(
            "prioritized",
            sampler=selectors.Prioritized(0.6),
            remover=selectors.Fifo(),
            max_size=500,
            rate_limiter=limiters.SampleToInsertRatio(8, 10, (0, 160)),
            new_priority="largest",
        ),
        hr.Table(
            "distinct",
            sampler=selectors.Uniform(replacement=False),
            remover=selectors.MinHeap(),
            max_size=500,
            rate_limiter=limiters.MinSize(20),
        ),
        hr.Table.queue("queue", 64),
        hr.Table.stack("stack", 9),
        hr.Table("plain", sampler=selectors.MaxHeap(), remover=selectors.Fifo(), max_size=5),
    )
    queue = found.queues["samples"]
    assert (queue.batch_size, queue.num_buffers) == (32, 3)
    assert queue.signature == hr.Signature.like(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "capacity = 10",
            "capcity = 10",
            "4: replays.r.capcity: unknown key; expected one of signature, tables, capacity",
        ),
        ("capacity = 10", 'capacity = "10"', "4: replays.r.capacity: expected `int`, got a string"),
        ("capacity = 10", "capacity = true", "4: replays.r.capacity: expected `int`, got `bool`"),
        ("max_size = 5", "", "7: replays.r.tables.t: `max_size` is missing; add it"),
        (
            "max_size = 5",
            "max_size = 0",
            "10: replays.r.tables.t.max_size: expected an integer >= 1, got 0",
        ),
        *(
            (
                "max_size = 5",
                f"max_size = 5\nnew_priority = {bad}",
                "11: replays.r.tables.t.new_priority: expected a finite number >= 0 or 'largest', got ",
            )
            for bad in ("-1", '"max"', "true", "nan", "[]")
        ),
        (
            '"Uniform"',
            '"Uniformly"',
            "8: replays.r.tables.t.sampler.kind: invalid enum value 'Uniformly'; expected one of 'Fifo', 'Lifo', ",
        ),
        (
            '"Uniform"',
            '"Uniform", replace = 1',
            "8: replays.r.tables.t.sampler.replace: unknown key; expected one of kind, ",
        ),
        (
            '"Uniform"',
            '"Prioritized", priority_exponent = -1',
            "8: replays.r.tables.t.sampler.priority_exponent: ",
        ),
        (
            "max_size = 5",
            "max_size = 5\nrate_limiter = { n = 1 }",
            "11: replays.r.tables.t.rate_limiter: `kind` is missing",
        ),
        (
            "max_size = 5",
            'max_size = 5\nrate_limiter = { kind = "Half" }',
            "11: replays.r.tables.t.rate_limiter.kind: invalid value 'Half'; expected one of 'MinSize', 'Queue', ",
        ),
        (
            "max_size = 5",
            'max_size = 5\nrate_limiter = { kind = "MinSize", n = 0 }',
            "11: replays.r.tables.t.rate_limiter.n: expected an integer >= 1, got 0",
        ),
        (
            "max_size = 5",
            'max_size = 5\n[replays.r.tables.t.rate_limiter]\nkind = "MinSize"\n\nn = 0',
            "14: replays.r.tables.t.rate_limiter.n: expected an integer >= 1, got 0",
        ),
        (
            "max_size = 5",
            'max_size = 5\nrate_limiter = { kind = "MinSize", m = 0 }',
            "11: replays.r.tables.t.rate_limiter.m: unknown key; expected one of kind, n",
        ),
        (
            "max_size = 5",
            'max_size = 5\nrate_limiter = { kind = "MinSize", n = 9 }',
            "7: replays.r.tables.t: table 't': the rate limiter waits for 9 items",
        ),
        (
            'sampler = { kind = "Uniform" }',
            'sampler = { kind = "Uniform", priority_exponent = 0.6 }',
            "8: replays.r.tables.t.sampler.priority_exponent: unknown key of Uniform; expected one of kind, repl",
        ),
        (
            'remover = { kind = "Fifo" }',
            'remover = { kind = "Fifo", replacement = true }',
            "9: replays.r.tables.t.remover.replacement: unknown key of Fifo; expected one of kind",
        ),
        ('{ dtype = "int64" }', '{ dtype = "int63" }', "6: replays.r.signature.x.dtype: expected "),
        (
            '{ dtype = "int64" }',
            '{ dtype = "int64", shap = [1] }',
            "6: replays.r.signature.x.shap: unknown key of an array",
        ),
        (
            '{ dtype = "int64" }',
            '{ dtype = "int64", shape = [-1] }',
            "6: replays.r.signature.x.shape: expected ",
        ),
        ('{ dtype = "int64" }', "7", "6: replays.r.signature.x: expected an array such as { dtype = "),
        ('x = { dtype = "int64" }', '"a/b" = { dtype = "int64" }', "5: replays.r.signature: "),
        (
            'x = { dtype = "int64" }',
            "x = { dtype = [] }",
            "6: replays.r.signature.x.dtype: expected an array such as ",
        ),
        ("tcp://127.0.0.1:9000", "http://127.0.0.1", "2: address: expected 'tcp://host:port'"),
        (
            "tcp://127.0.0.1:9000",
            "tcp://127.0.0.256:9",
            "2: address: expected the name or IP address of a machine, got ",
        ),
        (
            "tcp://127.0.0.1:9000",
            "tcp://two words:9",
            "2: address: expected the name or IP address of a machine, got ",
        ),
        ("[replays.r]", 'unix = ""\n[replays.r]', "3: unix: expected a string of length >= 1"),
        ("capacity = 10", 'path = ""', "4: replays.r.path: expected a string of length >= 1"),
        ('address = "tcp://127.0.0.1:9000"', "", "1: expected address = "),
        (
            "[replays.r]",
            'token = "s3cret"\n[replays.r]',
            "3: token: expected the place of the secret: { environment = ",
        ),
        ("[replays.r]", "token = { }\n[replays.r]", "3: token: expected either environment = "),
        (
            "[replays.r]",
            'token = { file = "\\u0000" }\n[replays.r]',
            "3: token.file: expected a file with a secret, got embedded null byte",
        ),
        (
            "[replays.r]",
            'token = { file = "none" }\n[replays.r]',
            "3: token.file: expected a file with a secret, got ",
        ),
        (
            "[replays.r]",
            'token = { environment = "NO_SUCH" }\n[replays.r]',
            "3: token.environment: the environment variable NO_SUCH is not set",
        ),
        ("[replays.r]", "drain_timeout = -1\n[replays.r]", "3: drain_timeout: expected `float` >= 0.0"),
        (
            "[replays.r]",
            '[checkpoint]\ndirectory = "c"\nevery_seconds = 0\n[replays.r]',
            "5: checkpoint.every_seconds: expected `float` > 0.0",
        ),
        (
            "[replays.r]",
            "[limits]\nclients = 5\n[replays.r]",
            "4: limits.clients: unknown key; expected one of conn",
        ),
        (
            "[replays.r]",
            "[limits]\nlanes = 0\n[replays.r]",
            "4: limits.lanes: expected an integer >= 1, got 0",
        ),
        (
            "[replays.r]",
            '[limits]\nlanes = "x"\n[replays.r]',
            "4: limits.lanes: expected an integer >= 1, got 'x'",
        ),
        (
            "[replays.r]",
            '[page]\nhost = "0.0.0.0"\n[replays.r]',
            "4: page.host: other machines reach 0.0.0.0; add token",
        ),
        (
            "[replays.r]",
            '[page]\nhost = "learner..0"\n[replays.r]',
            "4: page.host: expected the name or IP address of this machine, got 'learner..0'",
        ),
        ("[replays.r]", "[page]\nport = 99999\n[replays.r]", "4: page.port: expected `int` <= 65535"),
        (
            "[replays.r]",
            "[queues]\nr = {}\n[replays.r]",
            "4: queues.r: expected another name than that of a replay",
        ),
        ("[replays.r]", "[queues]\nq = 1\n[replays.r]", "3: queues: expected a table, got `int`"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_key(read, tmp_path, old, new, message):
    assert SMALL.count(old) == 1
    with pytest.raises(click.BadParameter) as caught:
        read(SMALL.replace(old, new))
    assert caught.value.message.startswith(f"{tmp_path / 's.toml'}:{message}")
    assert "s3cret" not in caught.value.message


def test_nothing_to_serve(read):
    with pytest.raises(click.BadParameter, match=r"s\.toml:1: expected at least one table \[replays.NAME\]"):
        read('address = "tcp://127.0.0.1:9000"')
