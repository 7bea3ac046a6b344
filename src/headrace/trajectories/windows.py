"""Windows of one run of rows, in closed form.

A run is the rows of one episode (or, for CONTINUE, of a whole stream). Every writer and observer makes
exactly these windows: a *regular* window (all of its rows real, on stride) when its
last row arrives, the *closing* ones when the run ends. In the order of their starts the closing windows come
last, so `windows = regular windows + closing_windows`.
"""

from __future__ import annotations

from headrace.checks import check_count
from headrace.ends import EndOfEpisode as EndOfEpisode

Window = tuple[int, int, int]
"""`(start, rows, padding)`: `rows` real rows from row `start`, then `padding` invented ones."""


def windows(
    num_rows: int, length: int, stride: int = 1, end: EndOfEpisode = EndOfEpisode.DROP
) -> list[Window]:
    """Lists the windows of a run of `num_rows` rows, in order of their start.

    Args:
        num_rows: rows of the run, 0 or more.
        length: rows of a regular window, invented ones included.
        stride: rows from one start to the next.
        end: what happens to rows that fill no regular window.

    Returns:
        `(start, rows, padding)` of each window; `rows >= 1` and `start + rows <= num_rows`.

    Raises:
        ValueError: a number is too small, or PAD or TRUNCATE with `stride > length`.
        TypeError: a number is not an integer, or `end` is not an `EndOfEpisode`.

    >>> windows(6, 4, 2, EndOfEpisode.TILE)
    [(0, 4, 0), (2, 4, 0), (4, 2, 2)]
    >>> windows(6, 4, 3, EndOfEpisode.LAST)
    [(0, 4, 0), (2, 4, 0)]
    """
    count = regular_windows(num_rows, length, stride)
    closing = closing_windows(num_rows, length, stride, end)
    return [(i * int(stride), int(length), 0) for i in range(count)] + closing


def regular_windows(num_rows: int, length: int, stride: int = 1) -> int:
    """Counts the windows of a run that have all their rows: window i starts at row `i * stride`.

    >>> regular_windows(6, 4, 2)
    2
    """
    num_rows, length, stride = _checked(num_rows, length, stride)
    return 0 if num_rows < length else (num_rows - length) // stride + 1


def closing_windows(num_rows: int, length: int, stride: int, end: EndOfEpisode) -> list[Window]:
    """Lists the windows that exist only because the run ends here: `windows` without its regular ones.

    Costs no more than there are closing windows, however long the run was.

    >>> closing_windows(6, 3, 2, EndOfEpisode.PAD)
    [(4, 2, 1)]
    """
    num_rows, length, stride = check_window(length, stride, end, num_rows)
    count = regular_windows(num_rows, length, stride)
    left = num_rows - ((count - 1) * stride + length) if count else num_rows
    if left == 0 and end is not EndOfEpisode.TILE:
        return []
    match end:
        case EndOfEpisode.DROP | EndOfEpisode.CONTINUE:
            return []
        case EndOfEpisode.LAST:
            return [(num_rows - length, length, 0)] if count else []
        case EndOfEpisode.TRUNCATE:
            return [(count * stride, num_rows - count * stride, 0)]
        case EndOfEpisode.PAD:
            rows = num_rows - count * stride
            return [(count * stride, rows, length - rows)]
    starts = range(count * stride, num_rows, stride)
    return [(start, num_rows - start, length - (num_rows - start)) for start in starts]


def rows_in_no_window(num_rows: int, length: int, stride: int, end: EndOfEpisode) -> int:
    """Counts the rows of a run that end in none of its windows: what a writer reports as dropped.

    >>> rows_in_no_window(6, 4, 3, EndOfEpisode.DROP)
    2
    """
    num_rows, length, stride = check_window(length, stride, end, num_rows)
    count = regular_windows(num_rows, length, stride)
    covered = (count - 1) * stride + length if count else 0
    dropped = max(0, count - 1) * max(0, stride - length)
    for start, rows, _ in closing_windows(num_rows, length, stride, end):
        dropped += max(0, start - covered)
        covered = start + rows
    return dropped + num_rows - covered


def check_window(length: int, stride: int, end: object, num_rows: int = 0) -> tuple[int, int, int]:
    """Returns `(num_rows, length, stride)` as plain integers, or raises as `windows` does."""
    if not isinstance(end, EndOfEpisode):
        names = ", ".join(member.name for member in EndOfEpisode)
        raise TypeError(f"end: expected a member of EndOfEpisode ({names}), got {end!r}")
    num_rows, length, stride = _checked(num_rows, length, stride)
    if stride > length and end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE):
        raise ValueError(
            f"stride: expected at most length={length} with {end.name}, got {stride}; the last window "
            "would hold no real row. Use a smaller stride, or DROP, LAST or TILE"
        )
    return num_rows, length, stride


def _checked(num_rows: int, length: int, stride: int) -> tuple[int, int, int]:
    return (
        check_count("num_rows", num_rows, 0),
        check_count("length", length, 1),
        check_count("stride", stride, 1),
    )
