"""A random item of a table, as JSON that the page draws: images, plots and numbers."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.errors import ItemNotFound, Unsupported
from headrace.monitor.pictures import as_picture, is_image
from headrace.monitor.png import encode_png
from headrace.replay import ReplaySample

MAX_ROWS = 256
"""Rows that are read of one item."""
MAX_BYTES = 32 << 20
"""Bytes that are read of one item, unless a single row is larger."""
MAX_ROW_BYTES = 64 << 20
"""Items with larger rows are not read at all."""
_MAX_COLUMNS = 64
_MAX_IMAGES = 12
_MAX_IMAGE_SIDE = 256
# Components of a vector that are drawn as lines over the steps, and those drawn as bars for one step.
_MAX_LINES = 8
_MAX_BARS = 256


def look(replay: Any, name: str, row_bytes: int) -> dict[str, Any]:
    """Returns a random item of a table, which is not counted as a sample.

    Args:
        replay: the replay; its tables need the method `peek`.
        name: of the table.
        row_bytes: size of one row, to limit how many are read.

    Raises:
        ItemNotFound: the table has no items.
        KeyError: no such table.
        Unsupported: the tables have no `peek`, or a row is too large.
        Closed: the replay is closed.
    """
    table = replay.table(name)
    if not hasattr(table, "peek"):
        raise Unsupported(f"look: the tables of this {type(replay).__name__} cannot show an item")
    if row_bytes > MAX_ROW_BYTES:
        raise Unsupported(
            f"look: a row has {row_bytes} bytes; the page shows rows of at most {MAX_ROW_BYTES}"
        )
    max_rows = max(1, min(MAX_ROWS, MAX_BYTES // max(row_bytes, 1)))
    item: ReplaySample = table.peek(max_rows=max_rows)
    columns = replay.signature.flatten(item.data)
    rows = item.layout.length or 1
    return {
        "table": name,
        "key": str(item.info.keys[0]),
        "priority": float(item.info.priorities[0]),
        "times_sampled": int(item.info.times_sampled[0]),
        "rows": rows,
        "is_cut": rows == max_rows,
        "padded_rows": 0 if item.mask is None else int(np.count_nonzero(~item.mask)),
        "origin": _origin(item),
        "columns": [
            _column(path, array if item.layout.length is None else array[0])
            for path, array in list(columns.items())[:_MAX_COLUMNS]
        ],
        "columns_left_out": max(0, len(columns) - _MAX_COLUMNS),
    }


def _origin(item: ReplaySample) -> dict[str, Any] | None:
    """Returns lane, episode and steps of the item; None if it has left the table in between or they are unknown."""
    try:
        found = item.explain(0)
    except (ItemNotFound, Unsupported):
        return None
    steps, episodes = found.t.reshape(-1), found.episode_id.reshape(-1)
    return {
        "lane": found.lane,
        "episodes": [str(each) for each in np.unique(episodes)[:4]],
        "first_step": int(steps[0]),
        "last_step": int(steps[-1]),
    }


# ---- columns -------------------------------------------------------------------------------------------------------


def _column(path: str, steps: NDArray[Any]) -> dict[str, Any]:
    """Returns one column of an item.

    Args:
        path: name of the column.
        steps: [rows, ...].
    """
    shape = steps.shape[1:]
    found = {"name": path, "dtype": str(steps.dtype), "shape": list(shape)}
    if is_image(shape, steps.dtype):
        return {**found, **_images(steps)}
    if steps.dtype.kind not in "biuf":
        return {**found, "kind": "text", "text": shown(steps[0])}
    numbers = steps.reshape(len(steps), -1).astype(np.float64)
    if len(numbers) > 1 and numbers.shape[1] <= _MAX_LINES:
        return {**found, "kind": "lines", "lines": numbers.T.tolist()}
    if len(numbers) == 1 and numbers.shape[1] <= _MAX_BARS:
        return {**found, "kind": "values", "values": numbers[0].tolist()}
    return {**found, **_summary(numbers)}


def _images(steps: NDArray[np.uint8]) -> dict[str, Any]:
    chosen = np.unique(np.linspace(0, len(steps) - 1, _MAX_IMAGES).round().astype(int)).tolist()
    return {"kind": "images", "steps": chosen, "images": [_data_url(as_picture(steps[i])) for i in chosen]}


def _data_url(picture: NDArray[np.uint8]) -> str:
    stride = -(-max(picture.shape[:2]) // _MAX_IMAGE_SIDE)
    file = encode_png(np.ascontiguousarray(picture[::stride, ::stride]))
    return "data:image/png;base64," + base64.b64encode(file).decode()


def _summary(numbers: NDArray[np.float64]) -> dict[str, Any]:
    """Returns the range of a column that is too wide for lines: for each step the smallest, mean and largest value."""
    if numbers.shape[1] == 0:
        return {"kind": "text", "text": "no values"}
    if len(numbers) == 1:
        values = numbers[0]
        text = f"{values.size} values from {values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"
        return {"kind": "text", "text": text}
    return {
        "kind": "range",
        "lines": [numbers.min(axis=1).tolist(), numbers.mean(axis=1).tolist(), numbers.max(axis=1).tolist()],
    }
