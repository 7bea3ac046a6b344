"""docs/deployment.md: its files are valid, and its command lines start a server."""

import configparser
import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from click.testing import CliRunner
from msgspec import Struct
from msgspec.structs import fields

import headrace as hr
from headrace.cli import main
from headrace.cli.serve import sections
from headrace.cli.serve.service import Service
from headrace.cli.serve.settings import read_settings
from headrace.tables.description.table_json import SelectorJson
from tests.server.certificates import AUTHORITY, client_context

TEXT = (Path(__file__).parents[1] / "docs" / "deployment.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)


FILES = blocks("toml")
UNIT = configparser.ConfigParser(interpolation=None)
UNIT.optionxform = str
UNIT.read_string(blocks("ini")[0])


ENTRYPOINT = json.loads(re.search(r"ENTRYPOINT (.*)", blocks("dockerfile")[0])[1])


def listed(key):
    """The list of a key of the pod; Kubernetes puts `args` behind the ENTRYPOINT, and `command` in its place."""
    found = re.search(rf"\b{key}: (.*)", blocks("yaml")[0])
    return json.loads(found[1]) if found else []


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes a file of the page, with paths and ports of the test."""
    monkeypatch.setenv("HEADRACE_TOKEN", "one")
    monkeypatch.setenv("HEADRACE_PAGE_TOKEN", "two")

    def write(text):
        path = tmp_path / "headrace.toml"
        text = re.sub(
            r"(:|port = )\d{4}\b", lambda found: f"{found[1]}0", text.replace("0.0.0.0", "127.0.0.1")
        )
        path.write_text(re.sub(r'"/(?:var/lib|run|etc)/headrace', f'"{tmp_path}', text))
        AUTHORITY.cert_pem.write_to_path(tmp_path / "clients.pem")
        issued = AUTHORITY.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / "server.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
        return path

    return write


@pytest.mark.parametrize("text", FILES, ids=["shortest", "whole"])
def test_a_client_reaches_what_a_file_describes(config, text):
    found = []
    tls = client_context(certificate_of=AUTHORITY) if "[tls]" in text else None

    def during(ready):
        for address in ready.addresses:
            token = "one" if "token" in text else None
            with hr.Client(address, token=token, tls=tls if "tcp" in address else None) as client:
                found.append(sorted(client.statistics().served))

    with Service(read_settings(config(text))) as service:
        service.run(during, lambda seconds: True)
    expected = sorted(re.findall(r"^\[(?:replays|queues)\.(\w+)\]", text, flags=re.MULTILINE))
    assert found == [expected] * len(found)
    assert len(found) == 1 + ("\nunix = " in text)


def test_the_whole_file_has_every_key_and_the_page_every_kind():
    kinds = [each for each in vars(sections).values() if isinstance(each, type) and issubclass(each, Struct)]
    limits = {field.name for field in dataclasses.fields(hr.server.Limits)}
    for key in limits | {field.name for kind in kinds for field in fields(kind)}:
        assert re.search(rf"\b{key}\b( = |[].])", FILES[1]) or f"`{key}`" in TEXT, key
    tags = [each.__struct_config__.tag for each in kinds if isinstance(each.__struct_config__.tag, str)]
    selectors = get_args(get_type_hints(SelectorJson)["kind"])
    assert len(tags) == 4
    for kind in (*tags, *selectors):
        assert f"`{kind}`" in TEXT, kind


def test_the_mistake_of_the_page(config):
    path = config(FILES[0].replace("capacity", "capcity"))
    done = CliRunner().invoke(main, ["serve", str(path), "--check"])
    shown = re.search(r"^headrace.toml:\d+: .*$", TEXT, flags=re.MULTILINE)[0]
    assert shown.removeprefix("headrace.toml:5") in done.output
    assert f"headrace.toml:{5}: " in done.output


@pytest.mark.parametrize(
    "line",
    [
        UNIT["Service"]["ExecStart"],
        " ".join(ENTRYPOINT),
        " ".join(ENTRYPOINT + listed("args")),
        re.search(r"^\$ (.*)$", TEXT, flags=re.MULTILINE)[1],
    ],
    ids=["systemd", "container", "kubernetes", "shell"],
)
def test_the_command_lines(config, line):
    program, *arguments = shlex.split(line)
    assert Path(program).name == "headrace"
    arguments[-1] = str(config(FILES[1]))
    done = CliRunner().invoke(main, [*arguments, "--check"])
    assert done.exit_code == 0
    assert done.output.startswith(f"{arguments[-1]}: no mistake found ")


def test_every_way_passes_the_tokens_of_the_file():
    tokens = set(re.findall(r'environment = "(\w+)"', FILES[1]))
    assert len(tokens) == 2
    run = re.search(r"^docker run .*", TEXT, flags=re.MULTILINE)[0]
    secrets = re.search(r"`/etc/headrace/secrets` .*?`StateDirectory`", TEXT, flags=re.DOTALL)[0]
    for token in tokens:
        assert f"-e {token} " in run
        assert f"- name: {token}\n" in blocks("yaml")[0]
        assert f"`{token}=...`" in secrets


def test_the_pod_runs_as_the_user_of_the_image():
    """Its volume is that of root otherwise, and a store cannot be made there."""
    assert not listed("command")
    user = re.search(r"--uid (\d+)", blocks("dockerfile")[0])[1]
    assert f"USER {user}\n" in blocks("dockerfile")[0]
    assert f"fsGroup: {user} " in blocks("yaml")[0]


def test_folders_of_the_unit_are_those_of_the_file():
    service = UNIT["Service"]
    assert f"/var/lib/{service['StateDirectory']}/" in FILES[1]
    assert f"/run/{service['RuntimeDirectory']}/" in FILES[1]
    assert service["RestartPreventExitStatus"] == "2"
