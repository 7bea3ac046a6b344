"""Drawings for a page of HTML: histograms, and points by episode. Classes of the page give them colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.cli.tables import number

Points = Mapping[str, Sequence[tuple[float, float]]]

_BAR_WIDTH, _BAR_HEIGHT = 160, 28
_PLOT_WIDTH, _PLOT_HEIGHT = 520, 180
# Space for the numbers at the axes, and for a point at the edge.
_LEFT, _BELOW, _MARGIN = 70, 22, 6


def bars(counts: NDArray[np.int64]) -> str:
    """Returns bars whose heights show counts; a count that is not 0 has a height of one pixel at least.

    >>> bars(np.array([1, 0, 2]))[:60]
    '<svg class="bars" viewBox="0 0 160 28" preserveAspectRatio="'
    """
    width, most = _BAR_WIDTH / len(counts), int(counts.max())
    places = [
        (place * width, max(1.0, _BAR_HEIGHT * count / most))
        for place, count in enumerate(counts.tolist())
        if count
    ]
    path = "".join(
        f"M{x:.1f} {_BAR_HEIGHT}v{-height:.1f}h{0.9 * width:.1f}v{height:.1f}z" for x, height in places
    )
    return (
        f'<svg class="bars" viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" preserveAspectRatio="none">'
        f'<path d="{path}"/></svg>'
    )


def scatter(points: Points) -> str:
    """Returns a plot of points with the least and the largest number at each axis.

    Args:
        points: pairs of finite numbers (x, y), by the class of the page that has their colour.
    """
    pairs = np.array([pair for each in points.values() for pair in each])
    low, high = pairs.min(axis=0), pairs.max(axis=0)
    size = np.array([_PLOT_WIDTH - _LEFT - 2 * _MARGIN, _PLOT_HEIGHT - _BELOW - 2 * _MARGIN])
    scale = size / np.where(high > low, high - low, 1.0)
    groups = []
    for name, each in points.items():
        if each:
            x, y = ((np.array(each) - low) * scale).T + _MARGIN
            dots = "".join(
                f"M{_LEFT + across:.1f} {_PLOT_HEIGHT - _BELOW - up:.1f}h0"
                for across, up in zip(x, y, strict=True)
            )
            groups.append(f'<path class="dots {name}" d="{dots}"/>')
    bottom = _PLOT_HEIGHT - _BELOW
    labels = [
        _label(_LEFT - _MARGIN, bottom, low[1], "end"),
        _label(_LEFT - _MARGIN, 2 * _MARGIN, high[1], "end"),
        _label(_LEFT, _PLOT_HEIGHT - _MARGIN, low[0], "start"),
        _label(_PLOT_WIDTH, _PLOT_HEIGHT - _MARGIN, high[0], "end"),
    ]
    parts = [f'<path class="axes" d="M{_LEFT} 0V{bottom}H{_PLOT_WIDTH}"/>', *labels, *groups]
    return f'<svg class="plot" viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}">{"".join(parts)}</svg>'


def _label(x: float, y: float, value: float, anchor: str) -> str:
    shown = number(int(value) if float(value).is_integer() else float(value))
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{shown}</text>'
