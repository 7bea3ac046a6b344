"""Figures of matplotlib, which is optional."""

from __future__ import annotations

from typing import Any


def new_figure(width: float, height: float, purpose: str) -> Any:
    """An empty figure; `savefig` writes it.

    Args:
        width: in inches.
        height: in inches.
        purpose: what it is for, in the error.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f'{purpose} needs matplotlib: pip install "headrace[plot]"') from error
    # Figure and canvas by hand: pyplot would choose a display.
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def count_along(*axes: Any) -> None:
    """Numbers of episodes, steps or frames along these axes (`axes.xaxis`): there is no episode 0.5."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
