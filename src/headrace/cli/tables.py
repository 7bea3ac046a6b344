"""Tables on standard output: plain text in columns, wrapped to the width of a terminal."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from numbers import Real
from typing import Any, TextIO

import click

from headrace.terminal import columns, is_terminal

_GAP = "  "
# Larger numbers are shown with an exponent.
_LARGE = 1e12
# Categories of Unicode: combining marks and invisible characters.
_NO_WIDTH = ("Mn", "Me", "Cf")


def show(title: str, rows: Sequence[Sequence[Any]], header: Sequence[str] = ()) -> None:
    """Prints a title in one line, and a table below it.

    On a terminal, long cells are wrapped to its width. Elsewhere nothing is wrapped.

    Args:
        title: printed whole, also above a narrow table.
        rows: cells as `number` formats them. Control characters are printed as escapes.
        header: names of the columns. Columns of numbers are aligned right. Without a header the first column has names.
    """
    width = columns(sys.stdout) if is_terminal(sys.stdout) else None
    # click leaves styles out where there is no terminal.
    color = None if has_styles(sys.stdout) else False
    for line in lines(title, rows, header, width):
        click.echo(line, color=color)


def has_styles(stream: TextIO) -> bool:
    """Returns whether bold and italic text may be written: not to files and dumb terminals, and not with NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def can_print(text: str) -> bool:
    """Returns whether standard output has all characters of a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def lines(
    title: str, rows: Sequence[Sequence[Any]], header: Sequence[str] = (), width: int | None = None
) -> Iterator[str]:
    """Returns the lines that `show` prints, with styles.

    Args:
        title, rows, header: as of `show`.
        width: columns to which long cells are wrapped; None wraps nothing.
    """
    yield click.style(_printable(title), italic=True)
    yield from _lines(rows, header, width)


def show_spreads(title: str, spreads: dict[str, dict[str, float | None]]) -> None:
    """Prints a table of means, minima and maxima; `spreads` maps the name of each row to them."""
    names = ("mean", "min", "max")
    show(
        title,
        [(row, *(spread[name] for name in names)) for row, spread in spreads.items()],
        header=("", *names),
    )


def number(value: object) -> str:
    """Formats a value for a reader; "-" stands for None.

    >>> number(None), number(12.3456), number(1234567), number(0.00012), number(-1e30)
    ('-', '12.35', '1234567', '0.00012', '-1e+30')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        is_plain = 0.01 <= abs(value) < _LARGE or value == 0
        return f"{value:.2f}" if is_plain else f"{value:.2g}"
    return str(value)


def _lines(rows: Sequence[Sequence[Any]], header: Sequence[str], width: int | None) -> Iterator[str]:
    cells = [[_printable(number(value)) for value in row] for row in rows]
    grid = [list(header), *cells] if header else cells
    widths = [max(map(_longest_line, column)) for column in zip(*grid, strict=True)]
    if width is not None:
        _shrink(widths, width - len(_GAP) * len(widths))
    right = [
        bool(header) and all(value is None or isinstance(value, Real) for value in column)
        for column in zip(*(rows or [header]), strict=True)
    ]
    for index, row in enumerate(grid):
        in_bold = 1 if not header else len(row) if index == 0 else 0
        pieces = [_wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        for line in zip_longest(*pieces, fillvalue=""):
            padded = [
                _padded(piece, widths[column], right=right[column], bold=column < in_bold)
                for column, piece in enumerate(line)
            ]
            yield (_GAP + _GAP.join(padded)).rstrip()


def _shrink(widths: list[int], available: int) -> None:
    """Takes columns from the widest, one by one, until all fit or none is wider than 2."""
    while sum(widths) > available and max(widths) > 2:
        widths[widths.index(max(widths))] -= 1


def _padded(piece: str, width: int, *, right: bool, bold: bool) -> str:
    spaces = " " * (width - _width(piece))
    styled = click.style(piece, bold=True) if bold and piece else piece
    return spaces + styled if right else styled + spaces


def _wrapped(text: str, width: int) -> list[str]:
    """Breaks a cell into lines of a width, at spaces where there are any."""
    lines = []
    for line in text.split("\n"):
        while _width(line) > width:
            head = _head(line, width)
            end = len(head)
            if line[end] != " ":
                end = head.rfind(" ") + 1 or end
            lines.append(line[:end].rstrip())
            line = line[end:].lstrip()
        lines.append(line)
    return lines


def _head(text: str, width: int) -> str:
    """Returns as much of the beginning as fits; at least one character."""
    end = 1
    while _width(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def _longest_line(text: str) -> int:
    return max(map(_width, text.split("\n")))


def _width(text: str) -> int:
    """Returns the columns that a terminal takes for a text: 2 for wide characters, 0 for combining marks."""
    return sum(
        0 if unicodedata.category(each) in _NO_WIDTH else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _printable(text: str) -> str:
    """Replaces what could steer the terminal, or not be encoded, by escapes; ends of lines stay."""
    return "".join(
        repr(each)[1:-1] if each != "\n" and unicodedata.category(each) in ("Cc", "Cs") else each
        for each in text
    )
