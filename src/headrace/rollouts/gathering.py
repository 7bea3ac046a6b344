"""Training batches of the fragments that several workers sample."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Protocol, TypeVar

import numpy as np

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch
from headrace.checks import check_count, shown

_UNITS = ("env_steps", "agent_steps")
# Each worker counts these from 0.
_OWN_NUMBERS = (SampleBatch.EPS_ID, SampleBatch.ENV_ID, "fragment_id")

Sampled = TypeVar("Sampled", SampleBatch, MultiAgentBatch, covariant=True)


class Sampler(Protocol[Sampled]):
    """Anything that samples one batch a call, such as a `RolloutWorker`."""

    def sample(self) -> Sampled:
        """Returns the next batch."""


def gather(
    workers: Iterable[Sampler[Sampled]], train_batch_size: int, *, count_steps_by: str = "env_steps"
) -> Sampled:
    """Samples from every worker, round after round, until there are enough steps, and puts all together.

    Fragments stay whole and every worker has an equal share, so the result may be larger than asked for.

    Each worker counts `episode_id`, `env_id` and `fragment_id` from 0. With W workers, number k of worker i becomes
    k * W + i, so rows of different workers never have the same number.

    Args:
        workers: objects with `sample()`, which all return a `SampleBatch`, or all a `MultiAgentBatch`.
        train_batch_size: number of steps at least.
        count_steps_by: "env_steps", or "agent_steps": the rows of all agents.

    Raises:
        TypeError: `workers` is not iterable.
        ValueError: train_batch_size < 1, an unknown unit, no workers.
        SpecError: the columns of the batches differ.

    >>> class Worker:
    ...     def sample(self):
    ...         return SampleBatch({"reward": [1.0] * 200})
    >>> gather([Worker(), Worker()], 1000).count
    1200
    """
    # Rules: views-rollouts R17
    size = check_count("train_batch_size", train_batch_size, 1)
    if count_steps_by not in _UNITS:
        raise ValueError(
            f"count_steps_by: expected one of {', '.join(map(repr, _UNITS))}, got {count_steps_by!r}"
        )
    if not isinstance(workers, Iterable):
        raise TypeError(f"workers: expected a list of workers, got {shown(workers)}")
    every = list(workers)
    if not every:
        raise ValueError("workers: expected at least one, got none")
    batches: list[Sampled] = []
    steps = 0
    while steps < size:
        sampled = [worker.sample() for worker in every]
        batches += [_numbered(batch, place, len(every)) for place, batch in enumerate(sampled)]
        steps += sum(
            batch.env_steps() if count_steps_by == "env_steps" else batch.agent_steps() for batch in sampled
        )
    kind = type(batches[0])
    return kind.concat(batches)


def _numbered(batch: Sampled, place: int, workers: int) -> Sampled:
    """Returns a batch of one of several workers with numbers that the other workers do not use."""
    if workers == 1:
        return batch
    if isinstance(batch, MultiAgentBatch):
        policies = {name: _numbered(each, place, workers) for name, each in batch.policy_batches.items()}
        return type(batch)(policies, batch.env_steps())
    result = copy.copy(batch)
    for name in _OWN_NUMBERS:
        if name in result:
            result[name] = np.asarray(result[name]) * workers + place
    return result
