"""Which files are compiled, when they are compiled again, and with which compiler."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
sys.path.append(str(Path(__file__).parents[1] / "build_tools"))
import backend
import compiler
import kernels

KERNEL = "import os\n\nimport cython\n"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A project of two kernels: `window` reads the declarations of `layout` and `kinds`, `heap` none."""
    for name, text in {
        "setup.py": "",
        "src/headrace/store/window.py": KERNEL,
        "src/headrace/store/window.pxd": "from headrace.store.layout cimport *\n",
        "src/headrace/store/layout.py": "NEXT = 1\n",
        "src/headrace/store/layout.pxd": "cimport cython\nfrom headrace.kernels.kinds cimport Int\n",
        "src/headrace/kernels/kinds.pxd": "",
        "src/headrace/tables/heap.py": KERNEL,
        "src/headrace/tables/heap.pxd": "",
        "src/headrace/tables/python.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(kernels, "ROOT", tmp_path)
    monkeypatch.setattr(kernels, "_RECIPE", (tmp_path / "setup.py",))
    monkeypatch.setattr(kernels, "SHARED", tmp_path / "src/headrace/kernels/_shared.c")
    return tmp_path


def build(clone, at):
    """What a build leaves, at that time; sources are from time 100."""
    for source in clone.rglob("*.p*"):
        os.utime(source, (100, 100))
    for source in (*kernels.sources(), kernels.SHARED):
        kernels.compiled(source).touch()
        os.utime(kernels.compiled(source), (at, at))


def names(paths):
    return [path.stem for path in paths]


def test_what_is_compiled(clone):
    assert names(kernels.sources()) == ["window", "heap"]
    assert [kernels.module_name(source) for source in kernels.sources()] == [
        "headrace.store.window",
        "headrace.tables.heap",
    ]


def test_only_files_that_are_compiled_import_cython():
    # A wheel does not bring it: an import that Cython has not taken out fails there.
    package = kernels.ROOT / "src" / "headrace"
    importing = {
        path
        for path in package.rglob("*.py")
        if re.search(r"^\s*import cython\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert importing == set(kernels.sources())


def test_a_kernel_that_was_never_compiled_is_out_of_date(clone):
    assert names(kernels.out_of_date()) == ["window", "heap", "_shared"]
    build(clone, 200)
    assert kernels.out_of_date() == []


@pytest.mark.parametrize(
    ("changed", "old"),
    [
        ("src/headrace/store/window.py", ["window"]),
        ("src/headrace/store/window.pxd", ["window"]),
        ("src/headrace/store/layout.pxd", ["window"]),
        ("src/headrace/kernels/kinds.pxd", ["window"]),
        ("src/headrace/store/layout.py", []),
        ("src/headrace/tables/heap.pxd", ["heap"]),
        ("setup.py", ["window", "heap", "_shared"]),
    ],
)
def test_a_change_makes_what_reads_the_file_out_of_date(clone, changed, old):
    build(clone, 200)
    os.utime(clone / changed, (300, 300))
    assert names(kernels.out_of_date()) == old


def test_compiled_files_without_their_source_are_deleted(clone):
    build(clone, 200)
    folder = clone / "src/headrace/tables"
    suffix = EXTENSION_SUFFIXES[0]
    for name in ("moved", "python"):  # The second is still there, but is not a kernel any more.
        (folder / f"{name}{suffix}").touch()
    other_python = folder / "heap.cpython-399-x86_64-linux-gnu.so"
    other_python.touch()
    kernels.remove_leftovers(clone / "src", clone / "never_built")
    left = {path.name for path in folder.iterdir()}
    assert left == {"heap.py", "heap.pxd", f"heap{suffix}", other_python.name, "python.py"}
    assert kernels.compiled(kernels.SHARED).exists()


# ---- builds --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(clone):
    """A project of one kernel, which is built as this one is."""
    root = Path(__file__).parents[1]
    shutil.rmtree(clone / "src")
    shutil.copy(root / "setup.py", clone)
    shutil.copytree(root / "build_tools", clone / "build_tools")
    for name, text in {
        "pyproject.toml": '[project]\nname = "s"\nversion = "1"\n[tool.setuptools.packages.find]\nwhere = ["src"]\n',
        "src/headrace/__init__.py": "",
        "src/headrace/kernels/__init__.py": "",
        "src/headrace/kernels/heap.py": KERNEL,
        "src/headrace/kernels/heap.pxd": "",
    }.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(text)
    return clone


def run_build(folder, **environment):
    pytest.importorskip("Cython")
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def quick_compiler(small):
    """Makes the name of a compiler that does not optimize, and first runs a line of shell."""
    found = compiler.system_compiler()
    if found is None or sys.platform == "win32":
        pytest.skip("no compiler that a shell script can run")

    def make(line=":"):
        script = small / "quick"
        script.write_text(f'#!/bin/sh\n{line}\nexec {found} "$@" -O0\n')
        script.chmod(0o755)
        return str(script)

    return make


def test_a_source_that_changes_while_it_is_compiled_is_compiled_again(small, quick_compiler):
    source = small / "src/headrace/kernels/heap.py"
    command = quick_compiler(f"grep -q late {source} || echo 'late = True' >> {source}")
    done = run_build(small, CC=command)
    assert done.returncode == 0, done.stderr
    assert names(kernels.out_of_date()) == ["heap"]
    assert run_build(small, CC=command).returncode == 0
    assert kernels.out_of_date() == []
    code = "import headrace.kernels.heap as heap; print(heap.late, heap.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(small / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"True {kernels.compiled(source)}\n", done.stderr


def test_another_numpy_gets_c_of_its_own(small, quick_compiler):
    """C that Cython made with the declarations of one NumPy does not compile with the headers of an older one."""
    command = quick_compiler()
    assert run_build(small, CC=command).returncode == 0
    other = small / "other"
    (other / "numpy").mkdir(parents=True)
    (other / "numpy/__init__.py").write_text(
        f"__version__ = '2.0.99'\ndef get_include(): return {str(other)!r}\n"
    )
    (small / "src/headrace/kernels/heap.py").touch()
    assert run_build(small, CC=command, PYTHONPATH=str(other)).returncode == 0
    folders = {path.relative_to(small / "build/c").parts[0] for path in small.rglob("build/c/**/heap.c")}
    assert len(folders) == 2
    assert any(folder.endswith("numpy-2.0.99") for folder in folders)


def test_what_cython_refuses_is_said_last(small):
    source = small / "src/headrace/kernels/heap.py"
    source.write_text(KERNEL + "unfinished = 1 +\n")
    done = run_build(small)
    assert done.returncode == 1
    assert "heap.py:4:16: Expected an identifier or literal" in done.stdout + done.stderr
    assert done.stderr.endswith(f"Cython refuses {source.relative_to(small)}: its reasons are above.\n")
    assert "Traceback" not in done.stderr


# ---- compilers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system whose only programs are those that `add` makes."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    known = sysconfig.get_config_var
    monkeypatch.setattr(
        sysconfig, "get_config_var", lambda name: "named -pthread" if name == "CC" else known(name)
    )
    compiler.system_compiler.cache_clear()

    def add(name, exit_status=0):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {exit_status}\n")
        program.chmod(0o755)

    yield add
    compiler.system_compiler.cache_clear()


@pytest.mark.skipif(sys.platform == "win32", reason="setuptools looks for the compiler")
class TestCompilers:
    def test_that_of_python_is_taken_first(self, system, monkeypatch):
        system("named")
        system("cc")
        assert compiler.system_compiler() == "named -pthread"
        compiler.choose()
        assert "CC" not in os.environ

    def test_another_name_is_told_to_setuptools(self, system, monkeypatch):
        monkeypatch.setenv("CC", "")
        system("clang")
        assert compiler.system_compiler() == "clang"
        compiler.choose()
        assert os.environ["CC"] == "clang"

    def test_the_user_names_one(self, system, monkeypatch):
        system("cc")
        monkeypatch.setenv("CC", "ccache gcc-14")
        assert compiler.system_compiler() == "ccache gcc-14"

    def test_zig_is_asked_for_only_where_there_is_none(self, system):
        assert compiler.system_compiler() is None
        assert backend._compiler_requirement() == ["ziglang>=0.15"]
        compiler.system_compiler.cache_clear()
        system("cc")
        assert backend._compiler_requirement() == []

    def test_a_program_that_only_says_how_to_get_a_compiler_is_none(self, system):
        system("cc", exit_status=1)
        assert compiler.system_compiler() is None

    def test_neither_a_compiler_nor_zig(self, system, monkeypatch):
        monkeypatch.setitem(sys.modules, "ziglang", None)
        with pytest.raises(SystemExit, match="pip install ziglang"):
            compiler.set_up(None)


@pytest.mark.parametrize(
    ("platform", "has_options"),
    [("linux-x86_64", True), ("win-amd64", True), ("linux-aarch64", False), ("macosx-11.0-arm64", False)],
)
def test_options_of_the_processor(monkeypatch, platform, has_options):
    monkeypatch.setattr(sysconfig, "get_platform", lambda: platform)
    monkeypatch.setattr(compiler, "system_compiler", lambda: "cc")
    assert ("-msse4.2" in compiler.options("unix")) is has_options
    assert compiler.options("msvc") == ["/O2"]


def test_zig_is_told_the_processor(monkeypatch):
    class Compiler:
        def set_executables(self, **commands):
            self.commands = commands

    monkeypatch.setitem(sys.modules, "ziglang", type(sys)("ziglang"))
    monkeypatch.setattr(compiler, "system_compiler", lambda: None)
    for platform, processor in (("linux-x86_64", "-mcpu=x86_64_v2"), ("linux-aarch64", "-mcpu=baseline")):
        monkeypatch.setattr(sysconfig, "get_platform", lambda platform=platform: platform)
        made = Compiler()
        compiler.set_up(made)
        assert made.commands["compiler_so"][:5] == [sys.executable, "-m", "ziglang", "cc", processor]
        assert "-msse4.2" not in compiler.options("unix")


# ---- what users see ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["headrace.store.window", "headrace.tables.items.items", "headrace.replay"])
def test_a_clone_that_was_never_built_says_so(tmp_path, name):
    package = Path(__file__).parents[1] / "src" / "headrace"
    shutil.copytree(
        package, tmp_path / "headrace", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    )
    # As in an installation, where there is no Cython.
    code = f"import sys; sys.modules['cython'] = None; sys.path.insert(0, {str(tmp_path)!r}); import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: headrace: its kernels are not compiled")
    assert "scripts/setup" in done.stderr


def test_a_kernel_that_is_newer_than_the_build_does_not_run_plain(tmp_path):
    """Where Cython is installed Python would import its source, and be a hundred times as slow without a word."""
    package = Path(__file__).parents[1] / "src" / "headrace"
    shutil.copytree(package, tmp_path / "headrace", ignore=shutil.ignore_patterns("heap.*.so", "heap.*.pyd"))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import headrace"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "): tables/indexes/heap.py; install" in done.stderr.splitlines()[-1]
