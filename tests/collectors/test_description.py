"""The line that a batch prints (collectors, part 17)."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.batches.description import whole_returns
from headrace.testing import CounterEnv


def test_a_batch_prints_shape_columns_versions_and_returns():
    with hr.Collector(
        lambda: CounterEnv(3), lambda seen: np.zeros(len(seen), int), frames_per_batch=8
    ) as collector:
        batch = collector.next()
        columns = ", ".join(batch)
        # Returns of 0 + 4 + 8; the third episode goes on.
        assert (
            repr(batch) == f"<Batch [1, 8] of {columns}, policy version 0, 2 whole episodes with return 12>"
        )
        following = collector.next()
    # Its first step belongs to an episode of which two steps are missing.
    assert repr(following.flatten()).endswith("policy version 0, 2 whole episodes with return 12>")
    assert "whole" not in repr(hr.Batch({name: following[name][:, :1] for name in following}))


def test_versions_of_masked_rows_do_not_count():
    mask = np.array([[True, True, False]])
    columns = {"policy_version": np.array([[4, 6, 0]]), "mask": mask}
    assert repr(hr.Batch(columns)).endswith("policy versions 4 to 6>")
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    assert repr(hr.Batch(tensors)).endswith("policy versions 4 to 6>")
    nothing = {"policy_version": np.zeros((1, 2), int), "mask": np.zeros((1, 2), bool)}
    assert repr(hr.Batch(nothing)) == "<Batch [1, 2] of policy_version, mask>"


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 3)), max_size=6), st.randoms())
def test_whole_returns_against_a_plain_sum(episodes, order):
    # Each episode: its length, whether it ends, and how many of its first steps are elsewhere.
    rows, expected = [], []
    for number, (length, ends, missing) in enumerate(episodes):
        rewards = [10.0 * number + step for step in range(length)]
        if ends and not missing:
            expected.append(sum(rewards))
        rows += [
            (True, number, step, rewards[step], ends and step + 1 == length, False)
            for step in range(missing, length)
        ]
    rows += [(False, -1, 0, 0.0, False, False)] * 2
    order.shuffle(rows)
    kinds = [bool, np.int64, np.int64, np.float32, bool, bool]
    columns = [np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    np.testing.assert_allclose(whole_returns(*columns), expected)
