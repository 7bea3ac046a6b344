"""The flat public names: each is there, is what its module has, and is known to type checkers."""

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr

# What may be absent: the libraries of the extras. Nothing else may keep a module of ours from being imported.
OPTIONAL = {
    "ale_py", "dm_env", "envpool", "h5py", "hypothesis", "jax", "matplotlib", "minari", "mujoco", "pettingzoo", "PIL",
    "prometheus_client", "pyarrow", "pytest", "ray", "starlette", "torch", "uvicorn",
}  # fmt: skip

LAZY = {**hr._LAZY_NAMES, **hr._LAZY_MODULES}


def exists(module):
    """Whether the module is there, without running more than its parents."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    return (
        found is not None and found.origin is not None
    )  # A folder without __init__.py is no module of ours.


def type_checked_names():
    """Public name to module, as the TYPE_CHECKING block of `headrace/__init__.py` imports them."""
    tree = ast.parse(Path(hr.__file__).read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {
        (alias.asname, alias.name): statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@pytest.mark.parametrize("name", [name for name, module in LAZY.items() if exists(module)])
def test_a_public_name_is_what_its_module_has(name):
    module = importlib.import_module(LAZY[name])
    assert getattr(hr, name) is (module if name in hr._LAZY_MODULES else getattr(module, name))


def test_type_checkers_see_the_same_names():
    expected = {}
    for name, module in LAZY.items():
        if exists(module):
            parent = module.rpartition(".")[0] if name in hr._LAZY_MODULES else module
            expected[name, name] = parent
    assert type_checked_names() == expected


# Each attribute is named once rightly and once wrongly.
SNIPPET = """\
import headrace as hr

hr.Table.queue("a", 3)
hr.Tabel("a")
hr.selectors.Uniform()
hr.datasets.episodes
hr.datasets.episode
hr.collectors.Collector
hr.collectors.Colector
hr.trajectories.StepWriter
hr.trajectories.StepWritr
hr.testing.SelectorContract
hr.testing.SelectorContrakt
"""
WRONG = ("Tabel", "episode", "Colector", "StepWritr", "SelectorContrakt")


@pytest.mark.timeout(120)  # mypy reads its description of the standard library.
def test_type_checkers_refuse_a_name_that_does_not_exist(tmp_path):
    pytest.importorskip("mypy")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    package = Path(hr.__file__).parent
    # Only the modules whose names are looked at are read; what they import is any.
    read = [package / "__init__.py"]
    read += [package / name / "__init__.py" for name in ("collectors", "datasets", "testing", "trajectories")]
    options = ["--strict", "--follow-imports=skip", "--no-error-summary", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, str(snippet), *map(str, read)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("snippet.py")]
    assert len(found) == len(WRONG), done.stdout + done.stderr
    for line, name in zip(found, WRONG, strict=True):
        assert f'has no attribute "{name}"' in line


def test_dir_lists_the_public_names_only():
    for module in (hr, hr.collectors, hr.datasets, hr.testing, hr.trajectories):
        assert dir(module) == sorted(module.__all__)


def test_every_name_is_listed_once():
    assert len(hr.__all__) == len(set(hr.__all__))
    assert set(hr.__all__) <= set(dir(hr))
    eager = {
        name
        for name, value in inspect.getmembers(hr, inspect.isclass)
        if value.__module__.startswith("headrace.")
    }
    assert eager <= set(hr.__all__)


def test_errors_and_signatures_are_there_at_once():
    for name in (
        "SpecError",
        "DeadlineExceeded",
        "Closed",
        "Disconnected",
        "AuthenticationError",
        "ItemNotFound",
    ):
        assert vars(hr)[name] is getattr(hr.errors, name)
    for name in ("CheckpointError", "DatasetError", "WorkerDied", "StoreFull", "HeadraceError"):
        assert vars(hr)[name] is getattr(hr.errors, name)
    assert hr.Signature is hr.spec.Signature
    assert hr.ArraySpec is hr.spec.ArraySpec


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'Reply'"):
        hr.Reply  # noqa: B018
    assert not hasattr(hr, "Reply")


def test_the_version_is_that_of_the_package():
    assert importlib.metadata.version("headrace") == hr.__version__


@pytest.mark.parametrize("module", [found.name for found in pkgutil.walk_packages(hr.__path__, "headrace.")])
def test_every_module_can_be_imported(module):
    try:
        importlib.import_module(module)
    except ImportError as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        missing = getattr(cause, "name", None) or ""
        assert missing.partition(".")[0] in OPTIONAL, f"{module} cannot be imported: {error}"
        assert "headrace[" in str(error), f"{module}: expected the error to name the extra, got {error}"
