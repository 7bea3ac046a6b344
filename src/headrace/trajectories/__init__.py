"""Steps into items: windows, frames, episodes, n-step returns, and the actor's accumulator."""

from headrace.trajectories.windows import EndOfEpisode, closing_windows, windows

__all__ = ["EndOfEpisode", "closing_windows", "windows"]
