"""Batches of RLlib as batches of Headrace, and back: `SampleBatch` and `MultiAgentBatch`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.multi_agent_batch import MultiAgentBatch
from headrace.batches.sample_batch import SampleBatch
from headrace.trees import map_leaves

# The name in Headrace and that in RLlib; other columns have the same name in both.
_NAMES = {
    "observation": "obs",
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminateds",
    "truncated": "truncateds",
    "done": "dones",
    "next_observation": "new_obs",
    "prev_action": "prev_actions",
    "prev_reward": "prev_rewards",
    "episode_id": "eps_id",
}
_OURS = {theirs: ours for ours, theirs in _NAMES.items()}
_INFOS = "infos"


def from_rllib(batch: Any) -> SampleBatch | MultiAgentBatch:
    """Returns a batch of RLlib as one of Headrace, over the same arrays where they are NumPy's.

    `hr.rollouts.BatchWriter` writes it to a replay. The column `infos`, of Python objects, is left out. Padded
    sequences are returned without padding.

    Args:
        batch: a `SampleBatch` or `MultiAgentBatch` of RLlib, or a mapping with the columns of the former. Tensors are
            copied to the CPU.

    Raises:
        SpecError: a column does not have the rows of the others.

    >>> batch = from_rllib({"obs": np.zeros((3, 4)), "actions": np.arange(3), "rewards": np.ones(3)})
    >>> sorted(batch), batch.count
    (['action', 'observation', 'reward'], 3)
    """
    policies = getattr(batch, "policy_batches", None)
    if policies is not None:
        converted = {str(name): _from_columns(each) for name, each in policies.items()}
        return MultiAgentBatch(converted, batch.env_steps())
    return _from_columns(batch)


def _from_columns(batch: Mapping[str, Any]) -> SampleBatch:
    columns = {_OURS.get(name, name): _arrays(value) for name, value in batch.items() if name != _INFOS}
    longest: Any = getattr(batch, "max_seq_len", None)
    lengths = columns.get(SampleBatch.SEQ_LENS)
    if lengths is not None and getattr(batch, "zero_padded", False):
        mask = (np.arange(longest) < np.asarray(lengths)[:, None]).reshape(-1)
        columns = {name: _real_rows(value, mask) for name, value in columns.items()}
    return SampleBatch(columns, max_seq_len=None if longest is None else int(longest))


def to_rllib(batch: SampleBatch | MultiAgentBatch) -> Any:
    """Returns a batch of Headrace as RLlib's `SampleBatch` or `MultiAgentBatch`, over the same arrays.

    Padded sequences are returned without padding.

    Raises:
        ImportError: RLlib is not installed.
    """
    try:
        theirs: Any = importlib.import_module("ray.rllib.policy.sample_batch")
    except ImportError as error:
        raise ImportError('to_rllib needs RLlib: pip install "headrace[ray]" "ray[rllib]"') from error
    if isinstance(batch, MultiAgentBatch):
        policies = {name: to_rllib(each) for name, each in batch.policy_batches.items()}
        return theirs.MultiAgentBatch(policies, batch.env_steps())
    real = batch.without_padding()
    # RLlib computes `dones` itself, and refuses the column.
    columns = {
        _NAMES.get(name, name): value for name, value in real.data.items() if name != SampleBatch.DONES
    }
    if real.seq_lens is not None:
        columns[SampleBatch.SEQ_LENS] = np.asarray(real.seq_lens, np.int32)
    return theirs.SampleBatch(columns, _max_seq_len=real.max_seq_len)


def _arrays(tree: Any) -> Any:
    """Returns the tree with NumPy arrays in place of tensors."""
    return map_leaves(lambda leaf: np.asarray(leaf.detach().cpu() if hasattr(leaf, "detach") else leaf), tree)


def _real_rows(tree: Any, mask: NDArray[np.bool_]) -> Any:
    """Returns the rows of a padded column that are not padding; a column of one row a sequence is returned as it is."""
    return map_leaves(lambda leaf: leaf[mask] if len(leaf) == len(mask) else leaf, tree)
