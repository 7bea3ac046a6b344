"""Windows selected by a pattern: for each step, the lanes in which a window ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Selection(NamedTuple):
    """Rows in which windows end, by the number of the rule.

    Attributes:
        rows: bool[lanes] of a step, or bool[steps, lanes] of a block of steps.
        finals: the same for final rows.
    """

    rows: Mapping[int, NDArray[np.bool_]]
    finals: Mapping[int, NDArray[np.bool_]]
