"""How often a test tries something: as often as it says, or an eighth of that where kernels run as plain Python."""

import os

_PLAIN = os.environ.get("HEADRACE_PLAIN", "0") != "0"


def fewer(count):
    """Returns a number of examples or of draws: plain kernels are a hundred times as slow, and the same code."""
    return max(5, count // 8) if _PLAIN else count
