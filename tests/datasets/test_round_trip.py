"""What was recorded is what is read back: datasets G4, in npz and Parquet (Minari has its own tests)."""

import collections
import dataclasses
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import headrace as hr
from headrace import trees
from headrace.datasets import load_npz, load_parquet, save_npz, save_parquet

FORMATS = {"npz": (save_npz, load_npz), "parquet": (save_parquet, load_parquet)}
DTYPES = ["?", "i1", "u1", "<i2", ">i4", "i8", "u8", "f2", ">f4", "f8", "U3", "S3"]
MORE_DTYPES = {"npz": ["c8", "c16", "g"], "parquet": []}
# An array does not keep NULs at the end of a string.
TEXTS = st.text("añ\0b😀", max_size=3).map(lambda text: text.rstrip("\0"))
KEYS = st.text("abz .é_-0\\", min_size=1, max_size=3)


@pytest.fixture(params=FORMATS)
def file_format(request):
    return request.param


def bits(array):
    return array.dtype.str, array.shape, array.tobytes()


def same_bits(one, other):
    """Every array equal bit for bit: what `==` of episodes leaves open is -0.0 and the payload of a NaN."""
    for part in ("observations", "actions", "rewards", "terminations", "truncations", "infos", "extras"):
        ours, theirs = (
            trees.compile_tree(getattr(each, part), lambda leaf: isinstance(leaf, np.ndarray), part)
            for each in (one, other)
        )
        for left, right in zip(trees.leaves(ours), trees.leaves(theirs), strict=True):
            assert left.path == right.path
            if left.value.dtype.kind in "US":
                assert left.value.dtype == right.value.dtype
                assert left.value.tolist() == right.value.tolist()
            elif left.value.dtype != np.longdouble:  # Its padding bytes are nobody's.
                assert bits(left.value) == bits(right.value)


@st.composite
def tree_specs(draw, dtypes, depth=2):
    """A tree of (dtype, trailing shape)."""
    kinds = ["leaf", "leaf", "dict", "tuple"] if depth else ["leaf"]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(dtypes)), tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    children = tree_specs(dtypes, depth - 1)
    if kind == "dict":
        return draw(st.dictionaries(KEYS, children, min_size=1, max_size=3))
    return [*draw(st.lists(children, min_size=1, max_size=2))]


def build(draw, spec, rows):
    if isinstance(spec, dict):
        return {key: build(draw, child, rows) for key, child in spec.items()}
    if isinstance(spec, list):
        return tuple(build(draw, child, rows) for child in spec)
    dtype, shape = spec
    elements = TEXTS if dtype == "U3" else None
    return draw(hnp.arrays(np.dtype(dtype), (rows, *shape), elements=elements))


@st.composite
def episode_lists(draw, dtypes):
    observed, acted = draw(tree_specs(dtypes)), draw(tree_specs(dtypes))
    told = draw(st.dictionaries(KEYS, tree_specs(dtypes), max_size=2))
    more = draw(st.dictionaries(KEYS, tree_specs(dtypes), max_size=2))
    reward = draw(st.sampled_from(["f8", ">f4", "i8", "u1"]))
    episodes = []
    for _ in range(draw(st.integers(1, 3))):
        steps = draw(st.integers(1, 4))
        flags = np.zeros((2, steps), bool)
        flags[:, -1] = draw(st.tuples(st.booleans(), st.booleans()))
        episodes.append(
            hr.Episode(
                build(draw, observed, steps + 1),
                build(draw, acted, steps),
                draw(hnp.arrays(np.dtype(reward), steps)),
                *flags,
                infos={k: build(draw, v, steps + draw(st.integers(0, 1))) for k, v in told.items()},
                extras={k: build(draw, v, steps + draw(st.integers(0, 1))) for k, v in more.items()},
                seed=draw(st.none() | st.integers(0, 2**64 - 1)),
                options=draw(OPTIONS),
                id=draw(st.none() | st.integers() | st.text(max_size=3)),
            )
        )
    return episodes


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=2)
)
OPTIONS = st.none() | st.dictionaries(
    st.text("a$é", max_size=2),
    st.recursive(
        SCALARS
        | hnp.arrays(st.sampled_from(["f4", "i8", "?", "U2"]), hnp.array_shapes(min_dims=0, max_dims=2)),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text("b$", max_size=2), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    max_size=2,
)


@pytest.mark.parametrize("file_format", FORMATS)
@settings(max_examples=15)
@given(data=st.data())
def test_any_episodes_come_back_bit_for_bit(file_format, data):
    """Datasets G4: trees, dtypes, byte orders, shapes (of size 0 too), NaN, -0.0, strings, seeds, options, ids."""
    save, load = FORMATS[file_format]
    episodes = data.draw(episode_lists(DTYPES + MORE_DTYPES[file_format]))
    with tempfile.TemporaryDirectory() as folder:
        with load(save(episodes, Path(folder) / "x.npz")) as dataset:
            assert list(dataset) == episodes
            for one, other in zip(dataset, episodes, strict=True):
                same_bits(one, other)
            assert dataset.total_steps == sum(map(len, episodes))


def episode(observations, actions=(0, 1), **more):
    return hr.Episode(observations, list(actions), [0.5, 1.0], [False, True], [False, False], **more)


Pose = collections.namedtuple("Pose", "arm grip")
Point = dataclasses.make_dataclass("Point", ["x", "y"])


def test_numbers_at_the_edges(tmp_path, file_format):
    """Datasets G4: NaN with its payload, infinities, -0.0, integers beyond 2**53, the ends of each dtype."""
    save, load = FORMATS[file_format]
    odd_nan = struct.unpack("<d", bytes.fromhex("efbeadde0000f87f"))[0]
    one = episode(
        {
            "float": np.array([odd_nan, -0.0, np.inf]),
            "nan": np.array([np.nan, odd_nan, 0.0]),
            "int": np.array([2**53 + 1, -(2**63), 2**63 - 1]),
            "uint": np.array([2**64 - 1, 0, 2**53 + 1], np.uint64),
            "image": np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5),
            "bool": np.array([[True], [False], [True]]),
        },
        infos={"said": np.array(["", "ünï", "long " * 20]), "raw": np.array([b"\0a", b"", b"bcd"])},
        seed=2**64 - 1,
        options={"low": -0.0, "nested": {"goal": np.float32([1, np.nan]), "name": "x", "deep": {"n": None}}},
    )
    (back,) = load(save([one], tmp_path / "x.npz"))
    assert back == one
    same_bits(back, one)
    assert np.signbit(back.options["low"])


def test_records_come_back_as_records(tmp_path, file_format):
    """Datasets G4: named tuples and dataclasses are trees, too; a class that is not known comes back by its name."""
    save, load = FORMATS[file_format]
    one = episode(
        Pose(np.zeros((3, 2)), Point(np.ones(3), np.arange(3))), infos={"empty": {}, "none": {"x": None}}
    )
    (back,) = load(save([one], tmp_path / "x.npz"))
    assert back == one
    assert type(back.observations).__name__ == "Pose"
    assert back.observations.grip.y.tolist() == [0, 1, 2]
    assert one != episode(
        (np.zeros((3, 2)), Point(np.ones(3), np.arange(3))), infos={"empty": {}, "none": {"x": None}}
    )


def test_a_list_comes_back_as_an_array(tmp_path, file_format):
    save, load = FORMATS[file_format]
    (back,) = load(save([episode([0.0, 1.0, 2.0])], tmp_path / "x.npz"))
    assert isinstance(back.observations, np.ndarray)


@pytest.mark.parametrize(("terminated", "truncated"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_ends_are_kept_as_they_are(tmp_path, file_format, terminated, truncated):
    """Datasets G8: an unfinished episode stays unfinished, and both flags stay both flags."""
    save, load = FORMATS[file_format]
    one = hr.Episode([0.0, 1.0], [0], [1.0], [terminated], [truncated])
    (back,) = load(save([one], tmp_path / "x.npz"))
    assert (back.terminated, back.truncated) == (bool(terminated), bool(truncated))


def test_of_one_info_some_episodes_have_a_row_for_the_reset_and_strings_are_as_wide_as_they_were(
    tmp_path, file_format
):
    """Datasets G4, G5: rows T or T+1 and the width of strings are each episode's own."""
    save, load = FORMATS[file_format]
    episodes = [
        episode([0, 1, 2], infos={"a": np.array([1, 2]), "s": np.array(["x", "y", "z"], "U7")}),
        episode([3, 4, 5], infos={"a": np.array([1, 2, 3]), "s": np.array(["longer than that", ""])}),
    ]
    back = list(load(save(episodes, tmp_path / "x.npz")))
    assert back == episodes
    assert back[0].infos["s"].dtype == np.dtype("U7")


def test_metadata_is_there_again(tmp_path, file_format):
    """Datasets Z2, for every format that takes metadata."""
    save, load = FORMATS[file_format]
    metadata = {"author": "me", "low": np.arange(3), "nan": float("nan"), "nested": {"a": (1, [2])}}
    with load(save([episode([0, 1, 2])], tmp_path / "x.npz", metadata=metadata)) as dataset:
        assert dataset.metadata.keys() == metadata.keys()
        assert dataset.metadata["nested"] == metadata["nested"]
        np.testing.assert_array_equal(dataset.metadata["low"], metadata["low"])


def test_options_that_python_takes_for_equal_are_kept_apart(tmp_path, file_format):
    """Datasets G4."""
    save, load = FORMATS[file_format]
    values = [1, True, 1.0, 0, 0.0, -0.0, np.int64(1)]
    back = load(save([episode([0, 1, 2], options={"a": value}) for value in values], tmp_path / "x.npz"))
    found = [each.options["a"] for each in back]
    assert [(type(each), str(each)) for each in found] == [(type(each), str(each)) for each in values]
