"""MultiAgentBatch (views-rollouts B9)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import MultiAgentBatch, SampleBatch, SpecError


def test_counts():
    one, other = SampleBatch({"t": [0, 1, 2]}), SampleBatch({"t": [1]})
    batch = MultiAgentBatch({"one": one, "other": other}, 5)
    assert (batch.count, batch.env_steps(), len(batch), batch.agent_steps()) == (5, 5, 5, 4)
    assert batch["one"] is one is batch.policy_batches["one"]
    assert list(batch) == ["one", "other"]
    assert repr(batch) == "<MultiAgentBatch 5 env steps; one: 3 rows, other: 1 rows>"
    with pytest.raises(TypeError, match="one: expected a SampleBatch"):
        MultiAgentBatch({"one": {"t": [1]}}, 1)
    with pytest.raises(TypeError, match="policy_batches: expected a dict of SampleBatch, got list"):
        MultiAgentBatch([one], 1)
    with pytest.raises(TypeError, match="concat: expected a MultiAgentBatch, got SampleBatch"):
        MultiAgentBatch.concat([one])
    with pytest.raises(ValueError, match="env_steps"):
        MultiAgentBatch({}, -1)


def test_copies_are_deep():
    batch = MultiAgentBatch({"one": SampleBatch({"t": [0, 1]})}, 2)
    batch.copy()["one"]["t"][0] = 9
    assert batch["one"]["t"].tolist() == [0, 1]


def test_slices_keep_rows_of_one_step_together():
    # Two agents of one policy, agent by agent; another policy acts at steps 1 and 3.
    one = SampleBatch({"episode_id": [0] * 6, "env_t": [0, 1, 2, 0, 1, 2], "x": np.arange(6)})
    other = SampleBatch({"episode_id": [0, 0], "env_t": [1, 3], "x": [10, 11]})
    slices = MultiAgentBatch({"one": one, "other": other}, 4).timeslices(2)
    assert [part.env_steps() for part in slices] == [2, 2]
    assert slices[0]["one"]["x"].tolist() == [0, 1, 3, 4]
    assert slices[0]["other"]["x"].tolist() == [10]
    assert slices[1]["one"]["x"].tolist() == [2, 5]
    last = MultiAgentBatch({"one": one, "other": other}, 4).timeslices(3)[1]
    assert list(last) == ["other"]


def test_slices_by_t_where_there_is_no_env_t():
    batch = MultiAgentBatch({"one": SampleBatch({"t": [0, 1, 2, 0, 1]})}, 3)
    assert [part["one"]["t"].tolist() for part in batch.timeslices(2)] == [[0, 1, 0, 1], [2]]
    with pytest.raises(ValueError, match="env_t or t"):
        MultiAgentBatch({"one": SampleBatch({"x": [1]})}, 1).timeslices(1)
    with pytest.raises(ValueError, match="timeslices"):
        batch.timeslices(0)
    assert MultiAgentBatch({"one": SampleBatch({})}, 0).timeslices(3) == []


def test_slices_carry_the_states_on():
    one = SampleBatch(
        {"t": [0, 1, 2, 3], "state_in_0": [50], "state_out_0": [51, 52, 53, 54]}, seq_lens=[4], max_seq_len=4
    )
    slices = MultiAgentBatch({"one": one}, 4).timeslices(3)
    assert [part["one"]["state_in_0"].tolist() for part in slices] == [[50], [53]]
    padded = MultiAgentBatch({"one": one.right_zero_pad(5)}, 4).timeslices(3)
    assert padded[1]["one"]["t"].tolist() == [3, 0, 0, 0, 0]


def test_concat():
    one = MultiAgentBatch({"a": SampleBatch({"x": [1]}), "b": SampleBatch({"y": [2]})}, 3)
    other = MultiAgentBatch({"b": SampleBatch({"y": [3]})}, 4)
    both = MultiAgentBatch.concat([one, other])
    assert (both.env_steps(), both["a"]["x"].tolist(), both["b"]["y"].tolist()) == (7, [1], [2, 3])
    assert MultiAgentBatch.concat([]).count == 0
    with pytest.raises(SpecError):
        MultiAgentBatch.concat([one, MultiAgentBatch({"a": SampleBatch({"z": [1]})}, 1)])


KEYS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=10)


@given(st.lists(KEYS, min_size=1, max_size=3), st.integers(1, 4))
def test_slices_are_those_of_a_model(policies, size):
    batches = {
        str(number): SampleBatch(
            {
                "episode_id": np.array([key[0] for key in keys], int),
                "env_t": np.array([key[1] for key in keys], int),
                "x": np.arange(len(keys)),
            }
        )
        for number, keys in enumerate(policies)
    }
    steps = sorted({key for keys in policies for key in keys})
    wanted = []
    for begin in range(0, len(steps), size):
        chosen = set(steps[begin : begin + size])
        rows = {
            str(number): [row for row, key in enumerate(keys) if key in chosen]
            for number, keys in enumerate(policies)
        }
        wanted.append((len(chosen), {name: found for name, found in rows.items() if found}))
    found = MultiAgentBatch(batches, len(steps)).timeslices(size)
    assert [(part.env_steps(), {name: part[name]["x"].tolist() for name in part}) for part in found] == wanted
