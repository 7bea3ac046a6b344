"""`headrace doctor` without an environment: versions, kernels, optional libraries, limits of the system."""

import importlib.metadata
import json
import resource
import sys

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.doctor import installation
from headrace.cli.doctor.report import Report
from headrace.kernels import plain


def found():
    report = Report()
    installation.examine_installation(report)
    return {finding.check: finding for finding in report.findings}


def test_it_names_versions_and_is_done():
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0
    result = json.loads(done.output)
    assert (result["environment"], result["errors"]) == (None, 0)
    texts = {finding["check"]: finding["text"] for finding in result["findings"]}
    assert texts["headrace"].startswith(importlib.metadata.version("headrace"))
    assert f"numpy {importlib.metadata.version('numpy')}" in texts["libraries"]
    assert sys.implementation.cache_tag in texts["kernels"] or plain.VARIABLE in texts["kernels"]


def test_it_shows_a_table():
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0
    assert "installation: 0 errors" in done.output
    assert "descriptors" in done.output


def test_extras_are_present_only_if_all_their_libraries_are(monkeypatch):
    requirements = ["numpy>=2.0", 'full>=1; extra == "full"', 'a; extra == "half"', 'b>=2; extra == "half"']
    versions = {"full": "1.5", "a": "1.0"}
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    monkeypatch.setattr(installation, "installed_version", lambda name: versions.get(name, ""))
    findings = found()
    assert findings["extras"].text == "full (full 1.5)"
    assert findings["absent extras"].text == "half"
    assert 'pip install "headrace[half]"' in findings["absent extras"].fix


def test_an_extra_that_this_python_replaces_is_not_asked_for(monkeypatch):
    marker = '; python_version < "{}" and extra == "{}"'
    requirements = ["a" + marker.format("3.11", "old"), "b" + marker.format("4.0", "new")]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    monkeypatch.setattr(installation, "installed_version", lambda name: "")
    findings = found()
    assert findings["extras"].text == "none"
    assert findings["absent extras"].text == "new"


def test_plain_kernels_are_a_warning(monkeypatch):
    monkeypatch.setenv(plain.VARIABLE, "1")
    finding = found()["kernels"]
    assert (finding.level, plain.VARIABLE in finding.fix) == ("warning", True)


@pytest.mark.parametrize(("limit", "level"), [("1073741824", "warning"), ("max", "ok"), (str(2**60), "ok")])
def test_the_limit_of_a_container_is_a_warning(monkeypatch, tmp_path, limit, level):
    monkeypatch.setattr(installation, "_LIMIT_OF_CONTAINER", file := tmp_path / "memory.max")
    file.write_text(limit)
    finding = found()["memory"]
    assert finding.level == level
    if level == "warning":
        assert finding.text.startswith("this container may use 1.0 GiB")
        assert "capacity=" in finding.fix


@pytest.mark.parametrize(
    ("limits", "level"), [((256, 4096), "note"), ((4096, 4096), "ok"), ((256, 256), "ok")]
)
def test_few_descriptors_are_a_note(monkeypatch, limits, level):
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    finding = found()["descriptors"]
    assert finding.level == level
    assert ("ulimit -n 4096" in finding.fix) == (level == "note")


def test_without_shared_memory_it_says_what_is_needed(monkeypatch):
    monkeypatch.setattr(installation, "has_sealed_memory", lambda: False)
    assert found()["worker processes"].level == "warning"
    monkeypatch.setattr(installation, "is_linux", lambda: False)
    finding = found()["worker processes"]
    assert (finding.level, "hr.Collector" in finding.fix) == ("note", True)
