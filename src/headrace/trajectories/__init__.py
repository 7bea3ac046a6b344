"""Steps into items: windows, frames, episodes, returns and advantages, and the actor's accumulator."""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.ends import EndOfEpisode
from headrace.trajectories.accumulator import TrajectoryAccumulator
from headrace.trajectories.episode import Episode, Fragment
from headrace.trajectories.frames import StepType, Trajectory
from headrace.trajectories.n_step import n_step
from headrace.trajectories.windows import windows

if TYPE_CHECKING:
    from headrace.trajectories.observers.episode_observer import AddEpisodeObserver
    from headrace.trajectories.observers.trajectory_observer import AddTrajectoryObserver
    from headrace.trajectories.returns import discounted_returns as discounted_returns
    from headrace.trajectories.returns import gae as gae
    from headrace.trajectories.returns import lambda_returns as lambda_returns
    from headrace.trajectories.returns import vtrace as vtrace
    from headrace.trajectories.rules.conditions import Condition
    from headrace.trajectories.rules.pattern_rule import PatternRule
    from headrace.trajectories.rules.step_rules import EpisodeRule, NStepRule
    from headrace.trajectories.writers.named_writers import EpisodeWriter, SequenceWriter
    from headrace.trajectories.writers.step_writer import StepWriter
    from headrace.trajectories.writers.transition_writer import TransitionWriter

__all__ = [
    "AddEpisodeObserver",
    "AddTrajectoryObserver",
    "Condition",
    "EndOfEpisode",
    "Episode",
    "EpisodeRule",
    "EpisodeWriter",
    "Fragment",
    "NStepRule",
    "PatternRule",
    "SequenceWriter",
    "StepType",
    "StepWriter",
    "Trajectory",
    "TrajectoryAccumulator",
    "TransitionWriter",
    "discounted_returns",
    "gae",
    "lambda_returns",
    "n_step",
    "vtrace",
    "windows",
]

# Modules with compiled kernels. An actor that only gathers need not wait for them, so these are imported when their
# names are first used.
_COMPILED = {
    "AddEpisodeObserver": "headrace.trajectories.observers.episode_observer",
    "AddTrajectoryObserver": "headrace.trajectories.observers.trajectory_observer",
    "Condition": "headrace.trajectories.rules.conditions",
    "EpisodeRule": "headrace.trajectories.rules.step_rules",
    "EpisodeWriter": "headrace.trajectories.writers.named_writers",
    "NStepRule": "headrace.trajectories.rules.step_rules",
    "PatternRule": "headrace.trajectories.rules.pattern_rule",
    "SequenceWriter": "headrace.trajectories.writers.named_writers",
    "StepWriter": "headrace.trajectories.writers.step_writer",
    "TransitionWriter": "headrace.trajectories.writers.transition_writer",
    "discounted_returns": "headrace.trajectories.returns",
    "gae": "headrace.trajectories.returns",
    "lambda_returns": "headrace.trajectories.returns",
    "vtrace": "headrace.trajectories.returns",
}


# Hidden from type checkers, to which every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _COMPILED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_COMPILED[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
