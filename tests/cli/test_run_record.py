"""`run.json`: how the files of a folder came about."""

import json
import platform
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from headrace.cli import main, run_record
from headrace.errors import DatasetError


def invoke(*arguments):
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_folder_tells_how_to_repeat_its_run(tmp_path):
    out = tmp_path / "a run"
    begin = datetime.now(UTC) - timedelta(seconds=1)
    invoke("collect", "CartPole-v1", "--steps", 64, "--workers", 0, "--seed", 7, "--out", out, "--json")
    record = run_record.read(out)
    assert record["command"] == (
        f"headrace collect CartPole-v1 --steps 64 --workers 0 --seed 7 --out '{out}' --json"
    )
    assert (record["environment"], record["seed"]) == ("CartPole-v1", 7)
    assert begin <= datetime.fromisoformat(record["date"]) <= datetime.now(UTC)
    libraries = ("headrace", "numpy", "torch", "gymnasium")
    assert record["versions"] == {
        "python": platform.python_version(),
        **{each: version(each) for each in libraries},
    }
    assert json.loads(invoke("inspect", out, "--json"))["run"] == record
    shown = invoke("inspect", out)
    assert "headrace collect CartPole-v1 --steps 64" in shown
    assert f"numpy {version('numpy')}" in shown
    report = tmp_path / "report.html"
    invoke("inspect", out, "--html", report)
    assert f"numpy {version('numpy')}" in report.read_text()


def test_a_library_that_is_absent_has_no_version(tmp_path, monkeypatch):
    monkeypatch.setattr(run_record, "installed_version", lambda name: "" if name == "torch" else "1.2")
    invoke("collect", "CartPole-v1", "--steps", 8, "--workers", 0, "--out", tmp_path / "out")
    record = run_record.read(tmp_path / "out")
    assert record["versions"]["torch"] is None
    assert record["seed"] is None
    assert dict(run_record.rows(record))["versions"].endswith("headrace 1.2, numpy 1.2, gymnasium 1.2")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"versions": 3}'])
def test_a_damaged_record_is_named(tmp_path, content):
    assert run_record.read(tmp_path) is None
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(DatasetError, match=r"run\.json: expected .*remove the file"):
        run_record.read(tmp_path)
