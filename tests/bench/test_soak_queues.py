"""Some seconds of the soak of queues."""

import pytest

from bench.soak_queues import soak


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_cut_connections_lose_and_double_nothing(kind, tmp_path):
    """server AK3, AK4"""
    address = {"address": None, "unix": tmp_path / "s"} if kind == "unix" else {}
    found = soak(address, 0.7, 3)
    assert found["cuts"] > 5
    assert found["samples"] > 100
