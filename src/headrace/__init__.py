"""Headrace brings reinforcement-learning experience from environments to learners.

Public names are flat: `import headrace as hr; hr.Replay(...)`. Modules that need more than NumPy are imported when
their name is first used, so that `import headrace` stays quick and loads no torch, JAX, gymnasium or Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import headrace.kernels  # noqa: F401 - chooses, before any other, how kernels are imported
from headrace.errors import AuthenticationError as AuthenticationError
from headrace.errors import CheckpointError as CheckpointError
from headrace.errors import Closed as Closed
from headrace.errors import DatasetError as DatasetError
from headrace.errors import DeadlineExceeded as DeadlineExceeded
from headrace.errors import Disconnected as Disconnected
from headrace.errors import HeadraceError as HeadraceError
from headrace.errors import ItemNotFound as ItemNotFound
from headrace.errors import SpecError as SpecError
from headrace.errors import StoreFull as StoreFull
from headrace.errors import Unsupported as Unsupported
from headrace.errors import WorkerDied as WorkerDied
from headrace.spec import ArraySpec as ArraySpec
from headrace.spec import Signature as Signature
from headrace.spec import register_container_name as _register_container_name

__version__ = "0.1.0.dev0"

# Imported at first use: the public name and the module that has it. A name added here is also added under
# TYPE_CHECKING below, for type checkers and editors (tests/test_public_names.py compares the two).
_LAZY_NAMES = {
    "AddEpisodeObserver": "headrace.trajectories",
    "AddTrajectoryObserver": "headrace.trajectories",
    "AsyncCollector": "headrace.collectors",
    "Batch": "headrace.collectors",
    "BatchQueue": "headrace.server.batch_queue",
    "Client": "headrace.server.client.client",
    "Collector": "headrace.collectors",
    "EndOfEpisode": "headrace.trajectories",
    "Episode": "headrace.trajectories",
    "EpisodeRule": "headrace.trajectories",
    "EpisodeWriter": "headrace.trajectories",
    "ExplorationType": "headrace.policies",
    "FunctionalPolicy": "headrace.weights",
    "ItemRule": "headrace.replay",
    "MultiAgentBatch": "headrace.rollouts",
    "MultiCollector": "headrace.collectors",
    "NStepRule": "headrace.trajectories",
    "PolicyVersion": "headrace.collectors",
    "Replay": "headrace.replay",
    "ReplaySample": "headrace.replay",
    "RolloutWorker": "headrace.rollouts",
    "SampleBatch": "headrace.rollouts",
    "SampleCollector": "headrace.rollouts",
    "SequenceWriter": "headrace.trajectories",
    "Server": "headrace.server.serving.server",
    "StepType": "headrace.trajectories",
    "StepWriter": "headrace.trajectories",
    "Table": "headrace.replay",
    "Trajectory": "headrace.trajectories",
    "TrajectoryAccumulator": "headrace.trajectories",
    "TransitionWriter": "headrace.trajectories",
    "View": "headrace.views",
    "exploration_type": "headrace.policies",
}
_LAZY_MODULES = {
    "collectors": "headrace.collectors",
    "datasets": "headrace.datasets",
    "envs": "headrace.envs",
    "loaders": "headrace.loaders",
    "memories": "headrace.memories",
    "monitor": "headrace.monitor",
    "rate_limiters": "headrace.tables.description.rate_limiters",
    "rollouts": "headrace.rollouts",
    "selectors": "headrace.tables.description.selectors",
    "server": "headrace.server",
    "testing": "headrace.testing",
    "trajectories": "headrace.trajectories",
    "views": "headrace.views",
    "weights": "headrace.weights",
}

if TYPE_CHECKING:
    from headrace import collectors as collectors
    from headrace import datasets as datasets
    from headrace import envs as envs
    from headrace import loaders as loaders
    from headrace import memories as memories
    from headrace import monitor as monitor
    from headrace import rollouts as rollouts
    from headrace import server as server
    from headrace import testing as testing
    from headrace import trajectories as trajectories
    from headrace import views as views
    from headrace import weights as weights
    from headrace.collectors import AsyncCollector as AsyncCollector
    from headrace.collectors import Batch as Batch
    from headrace.collectors import Collector as Collector
    from headrace.collectors import MultiCollector as MultiCollector
    from headrace.collectors import PolicyVersion as PolicyVersion
    from headrace.policies import ExplorationType as ExplorationType
    from headrace.policies import exploration_type as exploration_type
    from headrace.replay import ItemRule as ItemRule
    from headrace.replay import Replay as Replay
    from headrace.replay import ReplaySample as ReplaySample
    from headrace.replay import Table as Table
    from headrace.rollouts import MultiAgentBatch as MultiAgentBatch
    from headrace.rollouts import RolloutWorker as RolloutWorker
    from headrace.rollouts import SampleBatch as SampleBatch
    from headrace.rollouts import SampleCollector as SampleCollector
    from headrace.server.batch_queue import BatchQueue as BatchQueue
    from headrace.server.client.client import Client as Client
    from headrace.server.serving.server import Server as Server
    from headrace.tables.description import rate_limiters as rate_limiters
    from headrace.tables.description import selectors as selectors
    from headrace.trajectories import AddEpisodeObserver as AddEpisodeObserver
    from headrace.trajectories import AddTrajectoryObserver as AddTrajectoryObserver
    from headrace.trajectories import EndOfEpisode as EndOfEpisode
    from headrace.trajectories import Episode as Episode
    from headrace.trajectories import EpisodeRule as EpisodeRule
    from headrace.trajectories import EpisodeWriter as EpisodeWriter
    from headrace.trajectories import NStepRule as NStepRule
    from headrace.trajectories import SequenceWriter as SequenceWriter
    from headrace.trajectories import StepType as StepType
    from headrace.trajectories import StepWriter as StepWriter
    from headrace.trajectories import Trajectory as Trajectory
    from headrace.trajectories import TrajectoryAccumulator as TrajectoryAccumulator
    from headrace.trajectories import TransitionWriter as TransitionWriter
    from headrace.views import View as View
    from headrace.weights import FunctionalPolicy as FunctionalPolicy

__all__ = [
    "ArraySpec",
    "AuthenticationError",
    "CheckpointError",
    "Closed",
    "DatasetError",
    "DeadlineExceeded",
    "Disconnected",
    "HeadraceError",
    "ItemNotFound",
    "Signature",
    "SpecError",
    "StoreFull",
    "Unsupported",
    "WorkerDied",
    "__version__",
]
__all__ += list(_LAZY_NAMES)
__all__ += list(_LAZY_MODULES)

# A stored signature of frames restores `Trajectory`, even if nothing has imported it yet.
_register_container_name("Trajectory", "headrace.trajectories")


# Hidden from type checkers: with this function every name would exist for them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        module = _LAZY_NAMES.get(name) or _LAZY_MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'headrace' has no attribute {name!r}")
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module and not module.startswith(f"{error.name}."):
                raise  # An optional library: its error says which extra to install.
            raise AttributeError(f"module 'headrace' has no attribute {name!r}: {error}") from error
        if name in _LAZY_NAMES:
            found = getattr(found, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
