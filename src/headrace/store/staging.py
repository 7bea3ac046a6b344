"""Staging of the small columns of a step of several lanes, until the step is committed.

In the store the numbers of a column stand a record apart (`store.records`): NumPy takes 240 ns to write those of 64
lanes there. Side by side they are copied as bytes, and the kernel that commits the step takes the columns into the
records (bench/changes.md has the figures).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import Signature
from headrace.store.records import TO, fields, record_layout


class Stage:
    """Buffer for one step of some lanes, with the columns of a signature's records.

    Args:
        signature: of the store.
        lanes: number of lanes.

    Attributes:
        arrays: of each column `dtype[lanes, ...]`, to be written before each commit.
        memory: uint8[...], the memory of these arrays.
        fields: int64[F, 6], for `copying.place_fields`.

    >>> stage = Stage(Signature.like({"action": np.int64(0), "done": np.bool_(False)}), 3)
    >>> stage.arrays["action"][:] = 1, 2, 3
    >>> stage.memory.view(np.int64)[:3].tolist()
    [1, 2, 3]
    """

    def __init__(self, signature: Signature, lanes: int) -> None:
        layout = record_layout(signature)
        specs = {name: signature.columns[name] for name in layout.offsets}
        self.fields = fields(layout, [(name, spec.nbytes) for name, spec in specs.items()])
        # Each begins where every kind of number may begin.
        sizes = [-(-lanes * spec.nbytes // 16) * 16 for spec in specs.values()]
        self.fields[:, TO] = np.cumsum([0, *sizes])[:-1]
        self.memory = np.zeros(sum(sizes), np.uint8)
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.ndarray((lanes, *spec.shape), spec.dtype, self.memory, to)
            for (name, spec), to in zip(specs.items(), self.fields[:, TO].tolist(), strict=True)
        }
