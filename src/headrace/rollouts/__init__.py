"""Rollouts in the manner of RLlib: workers that step environments, batches of one policy and of several."""

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.batch_writer import BatchWriter
from headrace.rollouts.callbacks import Callbacks
from headrace.rollouts.gathering import gather
from headrace.rollouts.lanes.sample_collector import SampleCollector
from headrace.rollouts.samplers import AsyncSampler, SyncSampler
from headrace.rollouts.worker import RolloutWorker

__all__ = [
    "AsyncSampler",
    "BatchWriter",
    "Callbacks",
    "MultiAgentBatch",
    "RolloutWorker",
    "SampleBatch",
    "SampleCollector",
    "SyncSampler",
    "gather",
]


def __dir__() -> list[str]:
    return sorted(__all__)
