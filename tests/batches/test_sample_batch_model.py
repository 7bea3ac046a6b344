"""SampleBatch against lists of rows (views-rollouts B2 to B7)."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace import SampleBatch

LENGTHS = st.lists(st.integers(1, 5), max_size=6)
BOUNDS = st.none() | st.integers(-20, 20)


def sequences(lengths):
    """A list of sequences: each is its state, and its rows `(x, state after)`."""
    numbers = itertools.count()
    found, state = [], 1000
    for length in lengths:
        rows = [(next(numbers), 2000 + state + step) for step in range(length)]
        found.append((state, rows))
        state += 10
    return found


def batch_of(model):
    rows = [row for _, each in model for row in each]
    columns = {
        "x": np.array([x for x, _ in rows], np.int16),
        "tree": {"a": np.array([[x, -x] for x, _ in rows], np.float32).reshape(-1, 2)},
        "state_out_0": np.array([out for _, out in rows], np.int64),
        "state_in_0": np.array([state for state, _ in model], np.int64),
    }
    return SampleBatch(columns, seq_lens=[len(each) for _, each in model])


def cut(model, start, stop):
    """The model's rows `start <= row < stop`."""
    rows = [
        (index, step, state, row)
        for index, (state, each) in enumerate(model)
        for step, row in enumerate(each)
    ]
    found = []
    for index, group in itertools.groupby(rows[start:stop], key=lambda entry: entry[0]):
        group = list(group)
        step, state = group[0][1], group[0][2]
        found.append((state if step == 0 else model[index][1][step - 1][1], [row for *_, row in group]))
    return found


def same(batch, model, padded_to=None):
    expected = batch_of(model)
    assert batch.count == expected.count
    np.testing.assert_array_equal(batch.seq_lens, expected.seq_lens)
    assert batch.without_padding().data.keys() == expected.data.keys()
    for name in ("x", "tree/a", "state_out_0", "state_in_0"):
        found, wanted = batch[name], expected[name]
        if padded_to is not None and name != "state_in_0":
            pads = [[row for _, row in zip(range(padded_to), [*part, *[0] * padded_to], strict=False)]
                    for part in parts_of(np.arange(1, len(wanted) + 1), expected.seq_lens)]  # fmt: skip
            order = np.array(pads, int).reshape(-1)
            wanted = np.concatenate([np.zeros((1, *wanted.shape[1:]), wanted.dtype), wanted])[order]
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def parts_of(rows, lengths):
    ends = np.cumsum(lengths)
    return [rows[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]


@given(LENGTHS, BOUNDS, BOUNDS, st.booleans())
def test_slices(lengths, start, stop, padded):
    model = sequences(lengths)
    batch = batch_of(model)
    begin, end, _ = slice(start, stop).indices(sum(lengths))
    longest = 7 if padded else None
    part = (batch.right_zero_pad(7) if padded else batch)[start:stop]
    same(part, cut(model, begin, max(begin, end)), longest)


@given(LENGTHS, st.integers(1, 12), st.sampled_from([None, 5, 8]))
def test_time_slices_are_whole_sequences(lengths, size, padded_to):
    model = sequences(lengths)
    batch = batch_of(model)
    parts = (batch if padded_to is None else batch.right_zero_pad(padded_to)).timeslices(size)
    groups, rest = [], list(model)
    while rest:
        group = [rest.pop(0)]
        while rest and sum(len(rows) for _, rows in [*group, rest[0]]) <= size:
            group.append(rest.pop(0))
        groups.append(group)
    assert len(parts) == len(groups)
    for part, group in zip(parts, groups, strict=True):
        same(part, group, padded_to)


@given(st.lists(LENGTHS, min_size=1, max_size=4), st.sampled_from([None, 6]))
def test_concat(many, padded_to):
    models = [sequences(lengths) for lengths in many]
    batches = [batch_of(model) for model in models]
    if padded_to is not None:
        batches = [batch.right_zero_pad(padded_to) for batch in batches]
    same(SampleBatch.concat(batches), [each for model in models for each in model], padded_to)


@given(st.integers(0, 12), st.integers(1, 12))
def test_time_slices_of_rows(rows, size):
    parts = SampleBatch({"x": np.arange(rows)}).timeslices(size)
    assert [part["x"].tolist() for part in parts] == [
        list(range(rows))[at : at + size] for at in range(0, rows, size)
    ]


ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.integers(0, 1) for name in ("episode_id", "agent_index", "fragment_id")}
        | {name: st.sampled_from([False, False, True]) for name in ("terminated", "truncated")}
    ),
    min_size=1,
    max_size=12,
)
COLUMNS = st.sets(st.sampled_from(["episode_id", "agent_index", "fragment_id", "terminated", "truncated"]))


def runs(rows, names, keys):
    """Splits row numbers where a key differs or, without episode ids, behind a flag."""
    found = [[0]]
    for row in range(1, len(rows)):
        one, other = rows[row - 1], rows[row]
        differs = any(one[key] != other[key] for key in keys if key in names)
        ended = "episode_id" not in names and any(
            one[flag] for flag in ("terminated", "truncated") if flag in names
        )
        if differs or ended:
            found.append([])
        found[-1].append(row)
    return found


@given(ROWS, COLUMNS, st.integers(1, 5))
def test_episodes_and_chops(rows, names, longest):
    columns = {name: np.array([row[name] for row in rows]) for name in names}
    batch = SampleBatch({**columns, "x": np.arange(len(rows)), "state_in_0": np.arange(len(rows))})
    wanted = runs(rows, names, ["episode_id", "agent_index"])
    assert [part["x"].tolist() for part in batch.split_by_episode()] == wanted
    pieces = [
        run[at : at + longest]
        for run in runs(rows, names, ["episode_id", "agent_index", "fragment_id"])
        for at in range(0, len(run), longest)
    ]
    chopped = batch.chop(longest)
    assert chopped.seq_lens.tolist() == [len(piece) for piece in pieces]
    assert chopped["state_in_0"].tolist() == [piece[0] for piece in pieces]
    assert chopped["x"].tolist() == list(range(len(rows)))
