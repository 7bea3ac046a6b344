"""Refuses to test kernels that are not those of the sources, and leaves out doctests of libraries that are not here."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

_INTEGRATIONS = {
    "src/headrace/integrations/sb3.py": "stable_baselines3",
    "src/headrace/integrations/torchrl.py": "tensordict",
}
_NEED_JAX = ["src/headrace/replay/conversion/jax_batch.py", "src/headrace/trajectories/returns/jax_arrays.py"]
collect_ignore = [] if importlib.util.find_spec("jax") else _NEED_JAX
collect_ignore += [path for path, library in _INTEGRATIONS.items() if not importlib.util.find_spec(library)]


def pytest_configure():
    """Loads the compiled kernels. Ends the run if one of this clone is older than what it is compiled from."""
    tested = importlib.util.find_spec("headrace")
    is_installed_elsewhere = tested is None or not Path(tested.origin).is_relative_to(ROOT)
    if is_installed_elsewhere or os.environ.get("HEADRACE_PLAIN", "0") != "0":
        return
    sys.path.append(str(ROOT / "build_tools"))
    import kernels

    if old := kernels.out_of_date():
        names = ", ".join(str(source.relative_to(ROOT)) for source in old)
        raise pytest.UsageError(f"not compiled, or changed since: {names}. Run scripts/build.")
    # Where pytest looks for examples in a file whose module is not loaded, it would load the file uncompiled.
    for source in kernels.sources():
        importlib.import_module(kernels.module_name(source))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skips a test of what this system lacks: it ended with the error that says so. Or no test may be skipped."""
    report = _checked((yield))
    if call.excinfo is not None and sys.platform != "linux":
        reason = _unsupported(call.excinfo.value)
        if reason is not None:
            report.outcome, report.longrepr = "skipped", (str(item.path), None, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """Where no test may be skipped, a file may not either."""
    return _checked((yield))


def _checked(report):
    """Returns the report; of a test that was skipped and may not be, it is a failure."""
    if report.skipped and os.environ.get("HEADRACE_NO_SKIPS") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2])
        if "CUDA" not in reason:
            report.outcome, report.longrepr = "failed", f"HEADRACE_NO_SKIPS is set: {reason}"
    return report


def _unsupported(error):
    """The `hr.Unsupported` that a failure is, or that a doctest ended with."""
    from headrace.errors import Unsupported

    for failure in getattr(error, "failures", [error]):
        raised = getattr(failure, "exc_info", (None, failure))[1]
        if isinstance(raised, Unsupported):
            return raised
    return None
