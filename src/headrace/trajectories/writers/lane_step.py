"""A step of lanes that is about to be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class LaneStep(NamedTuple):
    """A step of lanes, as patterns and priority functions see it before it is stored.

    Attributes:
        newest: int64[lanes], the number in its episode of the newest row that is not a final row.
        columns: `[lanes, ...]`, of the lanes that store a row.
        storing: int64[n], rising: these lanes.
        ended: int64[m], rising: lanes whose episodes end.
        finals: `[m, ...]`, columns of their final rows.
    """

    newest: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]
    storing: NDArray[np.int64]
    ended: NDArray[np.int64]
    finals: Mapping[str, NDArray[Any]]
