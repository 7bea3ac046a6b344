"""Batches as pytrees, of optree and of JAX."""

import sys
import types

import numpy as np
import optree
import pytest

import headrace as hr
from headrace.batches.pytree import PytreeNode

BATCHES = {
    "Batch": hr.Batch({"mask": np.ones((1, 2), bool), "reward": np.ones((1, 2), np.float32)}, worker_idx=3),
    "SampleBatch": hr.SampleBatch(
        {"reward": np.ones(3, np.float32), "observation": {"a": np.arange(3)}, "state_in_0": np.zeros(2)},
        seq_lens=[1, 2],
        max_seq_len=4,
    ).right_zero_pad(4),
    "plain SampleBatch": hr.SampleBatch({"reward": np.ones(3, np.float32)}),
    "MultiAgentBatch": hr.MultiAgentBatch({"one": hr.SampleBatch({"t": np.arange(3)}, seq_lens=[3])}, 3),
}
each_batch = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


def test_jax_is_told_once_and_only_when_it_is_loaded(monkeypatch):
    told = []
    stub = types.SimpleNamespace()

    class Kind:
        pass

    node = PytreeNode(Kind, lambda _: ((), None), lambda _about, _children: Kind())
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    node.tell_jax()
    monkeypatch.setitem(sys.modules, "jax", stub)
    node.tell_jax()  # While JAX is being imported it has no registry yet.
    assert told == []
    stub.tree_util = types.SimpleNamespace(register_pytree_node=lambda *parts: told.append(parts))
    node.tell_jax()
    node.tell_jax()
    assert [kind for kind, _, _ in told] == [Kind]
    optree.unregister_pytree_node(Kind, namespace=optree.registry.__GLOBAL_NAMESPACE)


@each_batch
def test_optree_takes_a_batch_apart_and_puts_it_together(batch):
    doubled = optree.tree_map(lambda leaf: leaf * 2, batch)
    assert type(doubled) is type(batch)
    assert repr(optree.tree_structure(doubled)) == repr(optree.tree_structure(batch))
    for one, other in zip(optree.tree_leaves(doubled), optree.tree_leaves(batch), strict=True):
        np.testing.assert_array_equal(one, other * 2)


def test_sequences_and_padding_survive():
    batch = BATCHES["SampleBatch"]
    again = optree.tree_map(np.copy, batch)
    assert (again.count, again.max_seq_len, again.mask.tolist()) == (3, 4, batch.mask.tolist())
    assert again.without_padding()["observation/a"].tolist() == [0, 1, 2]


@each_batch
def test_leaves_may_become_anything(batch):
    # Libraries rebuild trees of None, shapes and markers.
    leaves, form = optree.tree_flatten(batch)
    rebuilt = optree.tree_unflatten(form, [object() for _ in leaves])
    assert type(rebuilt) is type(batch)


@each_batch
def test_jax_maps_and_compiles_over_a_batch(batch):
    jax = pytest.importorskip("jax")
    type(batch)(*_arguments(batch))  # Made after JAX was loaded, so JAX knows the class.
    back = jax.jit(lambda given: given)(batch)
    assert type(back) is type(batch)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(batch), strict=True):
        np.testing.assert_array_equal(one, other)


def _arguments(batch):
    return ({}, 0) if isinstance(batch, hr.MultiAgentBatch) else ({},)
