"""Steps into items: windows, frames, episodes, n-step returns, and the actor's accumulator."""

from headrace.trajectories.episode import Episode, Fragment
from headrace.trajectories.windows import EndOfEpisode, windows

__all__ = ["EndOfEpisode", "Episode", "Fragment", "windows"]
