"""Figures of matplotlib, which is optional."""

from __future__ import annotations

from typing import Any


def new_figure(width: float, height: float, purpose: str) -> Any:
    """Returns an empty figure; its `savefig` writes it.

    Args:
        width: in inches.
        height: in inches.
        purpose: the use of the figure, for the error.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f'{purpose} needs matplotlib: pip install "headrace[plot]"') from error
    # Not by pyplot, which would look for a display.
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def use_whole_numbers(*axes: Any) -> None:
    """Labels axes (`axes.xaxis`) that count episodes, steps or frames with whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
