"""SampleBatch: columns, slices, sequences and padding (views-rollouts B1 to B8)."""

import copy

import numpy as np
import pytest

import headrace as hr
from headrace import SampleBatch, SpecError


def states(lengths, seed=0):
    """A batch of sequences in which `state_in_0` of a row is `state_out_0` of the row before, plus its parts."""
    rows = sum(lengths)
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(rows + 1, 2)).astype(np.float32)
    starts = np.cumsum([0, *lengths[:-1]]) if lengths else np.zeros(0, int)
    columns = {"x": np.arange(rows), "state_in_0": before[starts], "state_out_0": before[1:]}
    return SampleBatch(columns, seq_lens=lengths, max_seq_len=9), before


# B1: columns


def test_b1_lists_become_arrays_and_trees_stay():
    batch = SampleBatch(
        {"x": [1, 2], "observation": {"camera": [[1.0], [2.0]], "pair": ([1, 2], np.ones(2))}}
    )
    assert batch["x"].dtype == np.int64
    assert batch["observation/camera"].shape == (2, 1)
    assert batch["observation/pair/0"].tolist() == [1, 2]
    assert isinstance(batch["observation"]["pair"], tuple)
    assert batch.data == batch.data
    assert type(batch.data) is dict
    assert (batch.count, len(batch), batch.env_steps(), batch.agent_steps()) == (2, 2, 2, 2)


def test_b1_a_mutable_mapping():
    batch = SampleBatch({"x": [1, 2], "y": [3, 4]})
    batch["z"] = [5, 6]
    assert list(batch) == ["x", "y", "z"]
    assert batch.pop("x").tolist() == [1, 2]
    assert dict(batch).keys() == {"y", "z"} == batch.data.keys()
    assert batch.get("x") is None
    assert "x" not in batch
    del batch["y"]
    with pytest.raises(KeyError, match="no column 'w'; there are z"):
        batch["w"]
    with pytest.raises(TypeError, match="a slice of rows, got 3"):
        batch[3]
    assert hash(batch) != hash(batch.copy())
    assert batch == batch
    assert batch != batch.copy()


def test_b1_ragged_columns_are_named():
    with pytest.raises(
        SpecError, match="^y, z/a: expected 3 rows, as the others have; got y with 2, z/a with 4"
    ):
        SampleBatch({"x": [1, 2, 3], "w": [1, 2, 3], "y": [1, 2], "z": {"a": np.ones(4), "b": np.ones(3)}})
    batch = SampleBatch({"x": [1, 2, 3]})
    with pytest.raises(SpecError, match="got y with 2|got x with 3"):
        batch["y"] = [1, 2]
    assert list(batch) == ["x"]


def test_b1_leaves_that_are_no_columns():
    with pytest.raises(SpecError, match="^x: expected an array with a row for each step"):
        SampleBatch({"x": np.float32(1)})
    with pytest.raises(SpecError, match="^x/a: expected an array"):
        SampleBatch({"x": {"a": "text"}})


def test_b1_with_sequences_states_and_sparse_views_have_one_row_each():
    batch = SampleBatch({"x": [1, 2, 3], "state_in_0": [[0.0], [1.0]], "sparse": [7, 8]}, seq_lens=[1, 2])
    assert batch.count == 3
    with pytest.raises(SpecError, match=r"^state_in_0: expected 3 rows.*got state_in_0 with 3"):
        SampleBatch({"x": [1, 2, 3], "state_in_0": [1, 2, 3]}, seq_lens=[1, 2])
    with pytest.raises(SpecError, match=r"^x: expected 4 rows"):
        SampleBatch({"x": [1, 2, 3]}, seq_lens=[2, 2])
    batch["other"] = [4, 5]
    batch["y"] = [4, 5, 6]
    with pytest.raises(SpecError, match=r"^z: expected 3 rows"):
        batch["z"] = [1]
    assert batch[:1]["other"].tolist() == [4]


def test_b1_seq_lens_may_be_a_column():
    batch = SampleBatch({"x": [1, 2, 3], "seq_lens": [1, 2]}, max_seq_len=2)
    assert batch.seq_lens.tolist() == batch["seq_lens"].tolist() == [1, 2]
    assert "seq_lens" in batch
    assert list(batch) == ["x"]
    assert batch.max_seq_len == 2
    with pytest.raises(ValueError, match="seq_lens: expected it once"):
        SampleBatch({"x": [1], "seq_lens": [1]}, seq_lens=[1])
    plain = SampleBatch({"x": [1, 2, 3]})
    assert "seq_lens" not in plain
    with pytest.raises(KeyError):
        plain["seq_lens"]
    plain["seq_lens"] = [3]
    assert plain.seq_lens.tolist() == [3]


@pytest.mark.parametrize("padded", [False, True])
def test_b1_a_batch_of_the_columns_of_a_batch_keeps_its_sequences(padded):
    batch = SampleBatch({"x": [1, 2, 3], "state_in_0": [7, 8]}, seq_lens=[1, 2], max_seq_len=4)
    if padded:
        batch = batch.right_zero_pad(3)
    made = SampleBatch(batch)
    made["y"] = made["x"] * 2
    assert "y" not in batch
    assert made["x"] is batch["x"]
    assert (made.count, made.seq_lens.tolist(), made.max_seq_len) == (3, [1, 2], 4)
    assert made.mask.tolist() == batch.mask.tolist()
    assert (made["y"] == 2 * batch["x"]).all()
    assert SampleBatch(batch, max_seq_len=2).max_seq_len == 2
    assert SampleBatch(SampleBatch({"x": [1, 2]})).seq_lens is None


def test_b1_lengths_given_with_a_batch_replace_its_own():
    batch = SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2])
    assert SampleBatch(batch, seq_lens=[3]).seq_lens.tolist() == [3]


def test_b1_columns_of_a_batch_that_do_not_fit_its_sequences_are_named():
    batch = SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2])
    batch.data["y"] = np.zeros(4)
    with pytest.raises(SpecError, match=r"^y: expected 3 rows"):
        SampleBatch(batch)


@pytest.mark.parametrize("lengths", [[0, 3], [[1, 2]], [1.0, 2.0], [-1, 4], ["a"]])
def test_b1_wrong_lengths(lengths):
    with pytest.raises(SpecError, match="^seq_lens: expected"):
        SampleBatch({"x": [1, 2, 3]}, seq_lens=lengths)


def test_b1_done():
    batch = SampleBatch({"terminated": [True, False, False], "truncated": [False, False, True]})
    assert batch["done"].tolist() == [True, False, True]
    assert "done" not in batch
    batch["done"] = [False, False, False]
    assert batch["done"].tolist() == [False] * 3
    with pytest.raises(KeyError):
        SampleBatch({"terminated": [True]})["done"]


def test_b1_names():
    names = {name: getattr(SampleBatch, name) for name in dir(SampleBatch) if name.isupper()}
    assert names == {
        "OBS": "observation", "ACTIONS": "action", "REWARDS": "reward", "TERMINATEDS": "terminated",
        "TRUNCATEDS": "truncated", "DONES": "done", "NEXT_OBS": "next_observation", "PREV_ACTIONS": "prev_action",
        "PREV_REWARDS": "prev_reward", "EPS_ID": "episode_id", "T": "t", "AGENT_INDEX": "agent_index",
        "ENV_ID": "env_id", "SEQ_LENS": "seq_lens",
    }  # fmt: skip


def test_b1_no_columns():
    batch = SampleBatch({})
    assert batch.count == 0
    assert (batch.timeslices(3), batch.split_by_episode(), list(batch.rows())) == ([], [], [])
    assert batch[:5].count == 0


# B2: slices


def test_b2_slices_share_memory():
    batch = SampleBatch({"x": np.arange(10), "tree": {"a": np.arange(10)}})
    part = batch[2:-3]
    assert part["x"].tolist() == part["tree/a"].tolist() == [2, 3, 4, 5, 6]
    assert np.shares_memory(part["tree/a"], batch["tree/a"])
    assert batch[5:2].count == 0
    assert batch[:].count == 10
    assert batch[::1].count == 10
    for step in (2, -1, 0):
        with pytest.raises(ValueError, match="no step other than 1"):
            batch[::step]


def test_b2_a_sequence_begun_in_the_middle():
    batch, before = states([3, 4, 1])
    part = batch[4:8]
    assert part.seq_lens.tolist() == [3, 1]
    np.testing.assert_array_equal(part["state_in_0"], before[[4, 7]])
    assert part.max_seq_len == 9
    assert np.shares_memory(part["state_out_0"], batch["state_out_0"])
    whole = batch[3:]
    assert np.shares_memory(whole["state_in_0"], batch["state_in_0"])


def test_b2_without_the_state_there_is_no_middle():
    batch = SampleBatch({"x": [1, 2, 3], "state_in_0": [[0.0], [1.0]]}, seq_lens=[1, 2])
    assert batch[1:].seq_lens.tolist() == [2]
    with pytest.raises(ValueError, match="state_in_0.*state_out_0"):
        batch[2:]
    sparse = SampleBatch({"x": [1, 2, 3], "sparse": [7, 8]}, seq_lens=[1, 2])
    with pytest.raises(ValueError, match="sparse has one row a sequence"):
        sparse[2:]
    assert SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2])[2:].seq_lens.tolist() == [1]


def test_b2_a_padded_batch_is_sliced_by_its_real_rows():
    batch = SampleBatch({"x": [1, 2, 3, 4]}, seq_lens=[2, 2]).right_zero_pad(3)
    part = batch[1:3]
    assert part["x"].tolist() == [2, 0, 0, 3, 0, 0]
    assert (part.count, part.seq_lens.tolist()) == (2, [1, 1])


# B3: time slices


def test_b3_rows():
    slices = SampleBatch({"x": range_array(10)}).timeslices(4)
    assert [part.count for part in slices] == [4, 4, 2]
    with pytest.raises(ValueError, match="size"):
        SampleBatch({"x": [1]}).timeslices(0)


def test_b3_whole_sequences():
    batch, _ = states([2, 2, 5, 1, 3])
    assert [part.seq_lens.tolist() for part in batch.timeslices(4)] == [[2, 2], [5], [1, 3]]
    padded = batch.right_zero_pad(5).timeslices(4)
    assert [part["x"].tolist() for part in padded[:2]] == [[0, 1, 0, 0, 0, 2, 3, 0, 0, 0], [4, 5, 6, 7, 8]]
    assert [len(part["state_in_0"]) for part in padded] == [2, 1, 2]
    assert np.shares_memory(padded[1]["x"], padded[0]["x"].base)


# B4: episodes


def test_b4_runs_of_ids():
    ids = [0, 0, 1, 1, 0]
    batch = SampleBatch({"episode_id": ids, "x": range_array(5)})
    assert [part["x"].tolist() for part in batch.split_by_episode()] == [[0, 1], [2, 3], [4]]
    batch["agent_index"] = [0, 1, 1, 1, 1]
    assert [part.count for part in batch.split_by_episode()] == [1, 1, 2, 1]


def test_b4_the_ids_decide_not_the_flags():
    batch = SampleBatch(
        {"episode_id": [3, 3, 3], "terminated": [False, True, False], "truncated": [False] * 3}
    )
    assert [part.count for part in batch.split_by_episode()] == [3]


def test_b4_flags_without_ids():
    flags = {"terminated": [False, True, False, False], "truncated": [False, False, True, False]}
    assert [part.count for part in SampleBatch(flags).split_by_episode()] == [2, 1, 1]
    assert [part.count for part in SampleBatch({"x": [1, 2]}).split_by_episode()] == [2]


def test_b4_keeps_sequences():
    batch = SampleBatch({"episode_id": [0, 0, 0, 1, 1], "state_in_0": [5, 6, 7]}, seq_lens=[2, 1, 2])
    parts = batch.split_by_episode()
    assert [part.seq_lens.tolist() for part in parts] == [[2, 1], [2]]
    assert [part["state_in_0"].tolist() for part in parts] == [[5, 6], [7]]


# B5: padding


def test_b5_example():
    batch = SampleBatch({"x": [1, 2, 3], "flag": [True] * 3, "state_in_0": [1.0, 2.0]}, seq_lens=[1, 2])
    padded = batch.right_zero_pad(5)
    assert padded["x"].tolist() == [1, 0, 0, 0, 0, 2, 3, 0, 0, 0]
    assert padded["x"].dtype == np.int64
    assert padded["flag"].tolist() == padded.mask.tolist() == [True] + [False] * 4 + [True] * 2 + [False] * 3
    assert (padded.seq_lens.tolist(), padded.count, padded["state_in_0"].tolist()) == ([1, 2], 3, [1, 2])
    assert batch.mask.tolist() == [True] * 3
    assert SampleBatch({"x": [1, 2]}).mask.tolist() == [True, True]
    assert padded.right_zero_pad(5) is not padded
    assert padded.without_padding()["x"].tolist() == [1, 2, 3]
    padded["y"] = np.arange(10)
    with pytest.raises(SpecError, match="^z: expected 10 rows"):
        padded["z"] = [1, 2, 3]


def test_b5_errors():
    batch = SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2])
    with pytest.raises(ValueError, match="at least 2, the longest sequence, got 1"):
        batch.right_zero_pad(1)
    with pytest.raises(ValueError, match="expected 5, to which the batch is padded, got 6"):
        batch.right_zero_pad(5).right_zero_pad(6)
    with pytest.raises(ValueError, match="seq_lens"):
        SampleBatch({"x": [1]}).right_zero_pad(2)


def test_b5_sequences_of_one_row_stay_states():
    # With sequences of one row each, a column of states is as long as the others: it is still not padded.
    batch = SampleBatch({"x": [1, 2, 3, 4], "sparse": [7, 8, 9]}, seq_lens=[1, 1, 2])[:2]
    assert batch.right_zero_pad(2)["sparse"].tolist() == [7, 8]


# B6: concat


def test_b6_rows_and_sequences():
    one, _ = states([2, 1])
    other, _ = states([4])
    other.max_seq_len = 12
    both = SampleBatch.concat([one, SampleBatch({}), other])
    assert (both.seq_lens.tolist(), both.max_seq_len, both.count) == ([2, 1, 4], 12, 7)
    assert both["x"].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert both["state_in_0"].shape == (3, 2)
    assert not np.shares_memory(SampleBatch.concat([one])["x"], one["x"])


def test_b6_nothing_is_cut_again():
    batch = SampleBatch({"x": range_array(10)}, seq_lens=[10], max_seq_len=4)
    assert SampleBatch.concat([batch, batch]).seq_lens.tolist() == [10, 10]


def test_b6_no_batches():
    assert SampleBatch.concat([]).count == 0
    assert SampleBatch.concat([SampleBatch({"x": np.zeros((0, 3))})])["x"].shape == (0, 3)


def test_b6_errors():
    one = SampleBatch({"x": [1], "y": [2]})
    with pytest.raises(SpecError, match="got y, z in some only"):
        SampleBatch.concat([one, SampleBatch({"x": [1], "z": [1]})])
    with pytest.raises(SpecError, match=r"^y: expected rows of one shape, got \(\), \(2,\)"):
        SampleBatch.concat([one, SampleBatch({"x": [1], "y": [[1, 2]]})])
    with pytest.raises(SpecError, match="^y: expected"):
        SampleBatch.concat([SampleBatch({"y": {"a": [1]}}), SampleBatch({"y": {"b": [1]}})])
    sequences = SampleBatch({"x": [1], "y": [2]}, seq_lens=[1])
    with pytest.raises(ValueError, match="in all batches or in none"):
        SampleBatch.concat([one, sequences])
    with pytest.raises(ValueError, match="padded to one length"):
        SampleBatch.concat([sequences.right_zero_pad(2), sequences])


# B7: chop


def test_b7_from_the_first_row():
    batch = SampleBatch({"x": range_array(10), "state_in_0": range_array(10) * 10})
    chopped = batch.chop(4)
    assert (chopped.seq_lens.tolist(), chopped.max_seq_len) == ([4, 4, 2], 4)
    assert chopped["state_in_0"].tolist() == [0, 40, 80]
    assert np.shares_memory(chopped["x"], batch["x"])


@pytest.mark.parametrize("name", ["episode_id", "agent_index", "fragment_id"])
def test_b7_each_number_is_compared_by_itself(name):
    batch = SampleBatch({name: [0, 0, 1, 1, 1], "x": range_array(5)})
    assert batch.chop(2).seq_lens.tolist() == [2, 2, 1]


def test_b7_ids_are_not_added_up():
    batch = SampleBatch({"episode_id": [0, 1], "agent_index": [1, 0]})
    assert batch.chop(9).seq_lens.tolist() == [1, 1]


def test_b7_flags_without_ids_and_other_columns():
    batch = SampleBatch({"terminated": [False, True, False], "truncated": [False] * 3, "sparse": [1, 2, 3]})
    chopped = batch.chop(9, by_sequence=["sparse"])
    assert (chopped.seq_lens.tolist(), chopped["sparse"].tolist()) == ([2, 1], [1, 3])
    with pytest.raises(ValueError, match="got sequences already"):
        chopped.chop(2)
    with pytest.raises(ValueError, match="max_seq_len"):
        batch.chop(0)


# B8: rows, copies, order


def test_b8_rows():
    batch = SampleBatch({"x": [1, 2, 3], "o": {"a": [4, 5, 6]}, "state_in_0": [0, 1]}, seq_lens=[1, 2])
    rows = [{"x": 1, "o": {"a": 4}}, {"x": 2, "o": {"a": 5}}, {"x": 3, "o": {"a": 6}}]
    assert list(batch.rows()) == list(batch.right_zero_pad(4).rows()) == rows


def test_b8_copies_are_deep():
    batch = SampleBatch({"x": [1, 2], "o": {"a": [4, 5]}}, seq_lens=[2])
    copied = batch.copy()
    copied["o/a"][0] = 9
    copied["y"] = [1, 2]
    assert batch["o/a"].tolist() == [4, 5]
    assert "y" not in batch
    assert copied.seq_lens.tolist() == [2]


def test_b8_shuffle():
    numbers = np.arange(50)
    batch = SampleBatch({"x": numbers, "o": {"a": numbers * 2}})
    other = batch.copy().shuffle(3)
    assert batch.shuffle(seed=3) is batch
    assert sorted(batch["x"]) == numbers.tolist() != batch["x"].tolist() == other["x"].tolist()
    np.testing.assert_array_equal(batch["o/a"], batch["x"] * 2)
    assert numbers.tolist() == list(range(50))
    with pytest.raises(ValueError, match="shuffle"):
        SampleBatch({"x": [1]}, seq_lens=[1]).shuffle()


def test_repr():
    batch = SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2]).right_zero_pad(4)
    assert repr(batch) == "<SampleBatch 3 rows in 2 sequences padded to 4 of x>"


def test_a_padded_or_derived_batch_keeps_its_class():
    class Own(hr.SampleBatch):
        pass

    batch = Own({"x": [1, 2]}, seq_lens=[1, 1])
    made = [
        batch[:1],
        *batch.timeslices(1),
        batch.copy(),
        batch.right_zero_pad(2),
        SampleBatch.concat([batch]),
    ]
    assert {type(each) for each in made} == {Own}


def range_array(rows):
    return np.arange(rows)


def test_b8_a_shallow_copy_has_columns_of_its_own():
    """`copy.copy` shares the arrays; a column added to it is not in the original."""
    batch = SampleBatch({"x": [1, 2, 3]}, seq_lens=[1, 2])
    shallow = copy.copy(batch)
    shallow["new"] = np.zeros(3)
    assert "new" not in batch
    assert shallow["x"] is batch["x"]
    assert shallow.seq_lens.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SampleBatch([1, 2]), "columns: expected a dict of arrays, got list"),
        (lambda: SampleBatch.concat([{"x": [1]}]), "concat: expected a SampleBatch, got dict"),
        (lambda: SampleBatch.concat(SampleBatch({"x": [1]})), "concat: expected a SampleBatch, got str"),
    ],
)
def test_arguments_of_other_types_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_b1_names_are_strings():
    with pytest.raises(hr.SpecError, match="expected strings as names, got 1"):
        SampleBatch({1: [1, 2]})
