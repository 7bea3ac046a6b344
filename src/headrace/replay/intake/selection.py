"""Windows that somebody else chooses: for each step the lanes whose newest rows end one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Selection(NamedTuple):
    """The lanes that a call makes items of, by the rule's number.

    Attributes:
        rows: bool[lanes], of the rows of the step.
        finals: bool[lanes], of the final rows.
    """

    rows: Mapping[int, NDArray[np.bool_]]
    finals: Mapping[int, NDArray[np.bool_]]
