"""Chooses the C compiler, and its options.

A machine without a compiler gets the one of the `ziglang` wheel, which `backend.py` asks for only then.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from functools import cache
from typing import Any

# Every x86-64 processor since about 2009 has these: x86-64-v2. gcc before 11 does not know that name.
_X86_64 = ["-msse4.2", "-mpopcnt", "-mcx16", "-msahf"]
# No sums fused into products: results are the same on every processor, and when the file runs as plain Python.
_OPTIMIZED = ["-O3", "-g0", "-ffp-contract=off"]


@cache
def system_compiler() -> str | None:
    """Returns the command of the system's C compiler, or None if there is none.

    On Windows setuptools looks for Microsoft's compiler, and says how to get it.
    """
    if sys.platform == "win32":
        return "cl"
    named = os.environ.get("CC")
    if named:
        return named
    candidates = [sysconfig.get_config_var("CC") or "cc", "cc", "gcc", "clang"]
    return next((command for command in candidates if _runs(command)), None)


def _runs(command: str) -> bool:
    # macOS has a `cc` that only says how to get a compiler, so it is not enough to find one.
    try:
        done = subprocess.run([*shlex.split(command), "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def choose() -> None:
    """Tells setuptools of a compiler whose name is not the one that Python was built with."""
    found = system_compiler()
    if found is not None and sys.platform != "win32" and found != sysconfig.get_config_var("CC"):
        os.environ["CC"] = found


def set_up(compiler: Any) -> None:
    """Makes setuptools' compiler object run zig where the system has no compiler.

    Raises:
        SystemExit: there is neither.
    """
    if system_compiler() is not None:
        return
    try:
        import ziglang  # noqa: F401
    except ImportError:
        sys.exit("No C compiler found. Install one (gcc or clang), or: pip install ziglang")
    # The options that Python was built with are those of another compiler: none of them is kept.
    zig = [sys.executable, "-m", "ziglang", "cc", f"-mcpu={'x86_64_v2' if _is_x86_64() else 'baseline'}"]
    shared = ["-shared", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    compiler.set_executables(
        preprocessor=[*zig, "-E"],
        compiler=zig,
        compiler_so=[*zig, "-fPIC", "-DNDEBUG", "-fwrapv"],
        linker_so=[*zig, *shared],
        linker_exe=zig,
    )


def options(kind: str) -> list[str]:
    """Returns the options for kernels.

    Args:
        kind: setuptools' name of the compiler: "msvc", "unix".
    """
    if kind == "msvc":
        return ["/O2"]
    # zig is told the processor where it is chosen.
    return _OPTIMIZED + (_X86_64 if _is_x86_64() and system_compiler() is not None else [])


def _is_x86_64() -> bool:
    # The processor that is built for, which on macOS need not be the one that builds.
    return sysconfig.get_platform().endswith(("x86_64", "amd64"))


if __name__ == "__main__":
    sys.exit(system_compiler() is None)
