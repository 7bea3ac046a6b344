"""Imports pytest and hypothesis; the error names the extra to install."""

from __future__ import annotations

try:
    import hypothesis
    import pytest
    from hypothesis import strategies
except ImportError as missing:
    raise ImportError(
        'the contracts of headrace.testing need pytest and hypothesis: pip install "headrace[testing]"'
    ) from missing

__all__ = ["hypothesis", "pytest", "strategies"]

# A contract's tests run in every class that derives from it; the time of one example says nothing.
given_contract = hypothesis.settings(
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.differing_executors, hypothesis.HealthCheck.too_slow],
)
