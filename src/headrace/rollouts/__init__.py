"""Rollouts in the manner of RLlib: batches of one policy and of several."""

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch

__all__ = ["MultiAgentBatch", "SampleBatch"]


def __dir__() -> list[str]:
    return sorted(__all__)
