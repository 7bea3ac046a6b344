"""Examines the installation: versions, kernels, optional libraries, and the limits of the system."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path

from headrace.cli.doctor.report import Report
from headrace.cli.library_versions import installed_version
from headrace.kernels import plain
from headrace.system import has_gil, has_sealed_memory, is_linux, machine_nbytes, processors

# Descriptors of a process with some tens of workers or connections.
_FEW_DESCRIPTORS = 1024
_GIB = 2**30
_LIMIT_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")
# An optional library of a distribution: `torch>=2.6; extra == "torch"`.
_OPTIONAL = re.compile(r"""^([\w.-]+).*;.*extra\s*==\s*["']([\w-]+)["']""")
# One that the standard library replaces from a version of Python on.
_BEFORE_PYTHON = re.compile(r"""python_version\s*<\s*["'](\d+)\.(\d+)["']""")
# Variables that change how many threads numeric libraries use.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCH_NUM_THREADS")


def examine_installation(report: Report) -> None:
    """Adds the findings of each check to the report."""
    _versions(report)
    _kernels(report)
    _extras(report)
    _processors(report)
    _memory(report)
    _processes(report)
    _descriptors(report)


def _versions(report: Report) -> None:
    place = Path(__file__).parents[2]
    report.ok("headrace", f"{installed_version('headrace')} in {place}")
    lock = "" if has_gil() else ", free-threaded"
    report.ok(
        "python", f"{platform.python_implementation()} {platform.python_version()}{lock} in {sys.prefix}"
    )
    report.ok("system", platform.platform())
    needed = ("numpy", "gymnasium", "msgspec", "optree", "cloudpickle")
    report.ok("libraries", ", ".join(f"{name} {installed_version(name)}" for name in needed))


def _kernels(report: Report) -> None:
    if os.environ.get(plain.VARIABLE, "0") != "0":
        report.warn(
            "kernels",
            f"{plain.VARIABLE} is set: kernels run as Python, a hundred times as slow",
            f"Unset {plain.VARIABLE}; it is for debugging the kernels.",
        )
    else:
        report.ok("kernels", f"compiled for {sys.implementation.cache_tag}")


def _extras(report: Report) -> None:
    """Tells which optional parts are complete."""
    libraries: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("headrace") or []:
        found = _OPTIONAL.match(requirement)
        if found is not None and _is_of_this_python(requirement):
            libraries.setdefault(found[2], []).append(found[1])
    present, absent = [], []
    for extra, names in libraries.items():
        versions = [installed_version(name) for name in names]
        if all(versions):
            present.append(f"{extra} ({', '.join(map(' '.join, zip(names, versions, strict=True)))})")
        else:
            absent.append(extra)
    report.ok("extras", ", ".join(present) or "none")
    if absent:
        fix = f'pip install "headrace[{absent[0]}]" for what the extra of that name brings.'
        report.note("absent extras", ", ".join(absent), fix)


def _is_of_this_python(requirement: str) -> bool:
    before = _BEFORE_PYTHON.search(requirement)
    return before is None or sys.version_info[:2] < (int(before[1]), int(before[2]))


def _processors(report: Report) -> None:
    allowed, there = processors(), os.cpu_count() or 1
    text = f"{allowed}" if allowed == there else f"{allowed} of the machine's {there}"
    limits = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    report.ok("processors", ", ".join([text, *limits]))


def _memory(report: Report) -> None:
    physical = machine_nbytes() / _GIB
    limit = _container_limit()
    if limit is None or limit / _GIB >= physical:
        report.ok("memory", f"{physical:.1f} GiB")
        return
    report.warn(
        "memory",
        f"this container may use {limit / _GIB:.1f} GiB of the machine's {physical:.1f} GiB; a process that takes more "
        "is killed without a message",
        "Give a replay a capacity=, or keep max_size of its tables small enough.",
    )


def _container_limit() -> int | None:
    """The bytes that a control group of Linux grants; None without a limit."""
    with suppress(OSError, ValueError):
        return int(_LIMIT_OF_CONTAINER.read_text())  # "max" is no number: no limit
    return None


def _processes(report: Report) -> None:
    if not is_linux():
        report.note(
            "worker processes",
            f"not on {platform.system()}: everything runs that needs one process",
            "docs/platforms.md lists what works where; hr.Collector collects in this process.",
        )
    elif not has_sealed_memory():
        report.warn(
            "worker processes",
            "this kernel has no sealed memory files, which workers and servers share with this process",
            "Use Linux 3.17 or later, and a sandbox that allows memfd_create.",
        )
    else:
        report.ok("worker processes", "memory is shared by descriptor: no limit of /dev/shm applies")


def _descriptors(report: Report) -> None:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open at once (at most {hard})"
    if 0 <= soft <= _FEW_DESCRIPTORS < hard:
        report.note("descriptors", text, f"For hundreds of workers or clients: ulimit -n {min(hard, 65536)}")
    else:
        report.ok("descriptors", text)
