"""Steps into items: windows, frames, episodes, n-step returns, and the actor's accumulator."""

from headrace.ends import EndOfEpisode
from headrace.trajectories.accumulator import TrajectoryAccumulator
from headrace.trajectories.episode import Episode, Fragment
from headrace.trajectories.frames import StepType, Trajectory
from headrace.trajectories.n_step import n_step
from headrace.trajectories.windows import windows

__all__ = [
    "EndOfEpisode",
    "Episode",
    "Fragment",
    "StepType",
    "Trajectory",
    "TrajectoryAccumulator",
    "n_step",
    "windows",
]
