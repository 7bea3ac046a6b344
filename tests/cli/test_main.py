"""The command line: help is quick, wrong use is 2, failure is 1."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from headrace import cli
from headrace.errors import WorkerDied


@pytest.mark.parametrize("arguments", [["--help"], ["collect", "--help"], ["train", "-h"], ["--version"]])
def test_help_is_done(arguments):
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete(shell):
    script = CliRunner().invoke(cli.main, prog_name="headrace", env={"_HEADRACE_COMPLETE": f"{shell}_source"})
    assert "_HEADRACE_COMPLETE" in script.output
    typed = {"COMP_WORDS": "headrace pl", "COMP_CWORD": "1" if shell != "fish" else "pl"}
    found = CliRunner().invoke(
        cli.main, prog_name="headrace", env={"_HEADRACE_COMPLETE": f"{shell}_complete", **typed}
    )
    assert "play" in found.output
    assert "serve" not in found.output


def test_help_names_every_command():
    shown = CliRunner().invoke(cli.main, ["--help"]).output
    assert "collect" in shown
    assert "train" in shown
    assert "..." not in shown.partition("Commands:")[2], (
        "a first sentence that is longer than its line is cut"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["collect"],
        ["collect", "CartPole-v1"],
        ["train"],
        ["train", "CartPole-v1", "--steps", "none"],
    ],
)
def test_wrong_use_is_2(arguments):
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == 2
    assert "Usage" in done.output


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["collect", "--help"]])
def test_help_loads_nothing_heavy(arguments):
    code = (
        "import sys\nfrom headrace.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "print([name for name in ('torch', 'gymnasium', 'numpy.random', 'matplotlib') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines()[-1] == "[]"


def fail_with(error):
    @click.command("fail")
    def command():
        raise error

    return command


def caused_by(text, name, told):
    error = ImportError(told)
    error.__cause__ = ModuleNotFoundError(text, name=name)
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            WorkerDied("worker 0 died of signal 9", worker_idx=0, exitcode=-9),
            "WorkerDied: worker 0 died of signal 9",
        ),
        (ImportError('needs torch: pip install "headrace[torch]"'), 'pip install "headrace[torch]"'),
        (caused_by("No module named 'ale_py'", "ale_py", "needs ale-py"), "ImportError: needs ale-py\n"),
        (
            caused_by("No module named 'mpi'", "mpi", "needs h5py"),
            "needs h5py (caused by ModuleNotFoundError: No module",
        ),
    ],
)
def test_failure_is_1_and_one_line(monkeypatch, error, told):
    monkeypatch.setitem(cli.main.commands, "fail", fail_with(error))
    monkeypatch.setattr(type(cli.main), "get_command", lambda self, ctx, name: self.commands[name])
    done = CliRunner().invoke(cli.main, ["fail"])
    assert done.exit_code == 1
    assert told in done.output
    assert "Traceback" not in done.output


def test_python_m_headrace():
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--help"], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.startswith("Usage: python -m headrace ")
    wrong = subprocess.run(
        [sys.executable, "-m", "headrace", "fly"], capture_output=True, check=False, timeout=30
    )
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    ("end", "code"), [(SystemExit(), 0), (SystemExit(3), 3), (SystemExit("a text"), 1), (OSError(), 1)]
)
def test_the_exit_code_is_that_of_python(monkeypatch, end, code):
    """Also where threads that an environment has left keep Python from ending."""
    ends = []

    def main():
        raise end

    monkeypatch.setattr(cli, "main", main)
    monkeypatch.setattr(cli, "exit_within_a_second", lambda exitcode, who: ends.append(exitcode))
    with pytest.raises(type(end)):
        cli.run()
    assert ends == [code]
