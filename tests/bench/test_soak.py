"""A few kills of the soak of collectors (`bench.soak_collectors`)."""

import pytest

from bench.soak_collectors import Soak


@pytest.mark.timeout(60)
def test_kills_lose_no_row():
    # CX2, CX3, CX6
    found = Soak("free", seed=3, kills=3).run()
    assert found["frames"] > 0
    assert found["restarts"] > 0
