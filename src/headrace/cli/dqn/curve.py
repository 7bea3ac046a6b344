"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.cli.episodes import EndedEpisode
from headrace.cli.figures import new_figure, use_whole_numbers


def draw(path: Path, title: str, episodes: Sequence[EndedEpisode], last: int, goal: float | None) -> None:
    """Draws the returns of episodes over frames, and their moving mean.

    Args:
        path: the file; its suffix selects the format.
        title: the text above the picture.
        episodes: all episodes that ended, in order.
        last: the number of episodes in the moving mean.
        goal: a return to mark; None marks none.

    Raises:
        ImportError: matplotlib is missing.
    """
    frames = np.array([episode.frame for episode in episodes])
    returns = np.array([episode.return_ for episode in episodes])
    figure = new_figure(8, 4.5, "the learning curve")
    axes = figure.add_subplot()
    axes.plot(frames, returns, ".", markersize=2, alpha=0.4, label="episode")
    if len(returns) >= last:
        means = np.convolve(returns, np.ones(last) / last, mode="valid")
        axes.plot(frames[last - 1 :], means, linewidth=2, label=f"mean of {last} episodes")
    if goal is not None:
        axes.axhline(goal, linestyle="--", linewidth=1, color="gray", label="goal")
    axes.set(title=title, xlabel="frames", ylabel="return")
    use_whole_numbers(axes.xaxis)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(path)
