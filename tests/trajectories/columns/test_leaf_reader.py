"""The quick reader of trees: the leaves that the general way finds, and its errors."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SpecError
from headrace.spec import ArraySpec
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked, reader
from headrace.trees import collect, compile_tree


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    content: Any


LEAVES = st.integers(0, 9)
TREES = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.dictionaries(st.sampled_from("abc"), children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3).map(tuple),
        st.builds(Pair, children, children),
        st.builds(Record, children),
        st.just(()),
        st.none(),
    ),
    max_leaves=8,
)


def node_of(tree):
    return compile_tree(tree, lambda node: isinstance(node, int))


def outcome(read):
    try:
        return [value if isinstance(value, int) else repr(value) for value in read()]
    except SpecError as error:
        return str(error)


def generally(node, data):
    found = {}
    collect(node, data, found)
    return list(found.values())


@given(TREES)
def test_leaves_come_in_the_order_of_the_columns(tree):
    node = node_of(tree)
    assert list(reader(node)(tree)) == generally(node, tree)


@given(TREES, TREES)
def test_other_trees_are_told_of_as_the_general_way_does(tree, other):
    node = node_of(tree)
    assert outcome(lambda: reader(node)(other)) == outcome(lambda: generally(node, other))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"a": {"b": 1}}, "a/c"),
        ({"a": {"b": 1, "c": (2,)}}, "a/c"),
        ({"a": {"b": 1, "d": (2, 3)}}, "a/c"),
        ({"a": 1}, "a"),
        ({"a": {"b": 1, "c": (2, 3)}, "x": 0}, "x"),
    ],
)
def test_the_path_of_what_is_missing(data, told):
    node = node_of({"a": {"b": 1, "c": (2, 3)}})
    assert list(reader(node)({"a": {"c": (2, 3), "b": 1}})) == [1, 2, 3]
    with pytest.raises(SpecError, match=told):
        reader(node)(data)


def test_an_array_in_place_of_a_container_of_its_length():
    """It has as many parts, and is none all the same."""
    node = node_of({"a": (1, [2, 3])})
    with pytest.raises(SpecError, match="a"):
        reader(node)({"a": np.ones(2)})


class Rows(NamedTuple):
    """What `[i]` gives is a row of each leaf, as users like it."""

    first: Any
    second: Any

    def __getitem__(self, index):
        return Rows(*(leaf[index] for leaf in self))


@pytest.mark.parametrize("nest", [lambda rows: rows, lambda rows: {"a": rows}, lambda rows: [rows, 1]])
def test_a_named_tuple_that_indexes_in_its_own_way(nest):
    data = nest(Rows(np.array([1, 2]), np.array([3, 4])))
    node = compile_tree(data, lambda node: isinstance(node, int | np.ndarray))
    found = [np.asarray(leaf).tolist() for leaf in reader(node)(data)]
    assert found[:2] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint64, np.int64, np.float16, np.float32, np.float64]
)
def test_scalars_of_the_leafs_dtype_pass_as_they_are(dtype):
    """As the elements of arrays do: a reward of an environment is mostly one."""
    value = dtype(1)
    [found] = checked([LeafCheck("reward", ArraySpec((), np.dtype(dtype)))], [value])
    assert found is value


@pytest.mark.parametrize(
    "value", [np.float32("nan"), np.float32("inf"), np.float32(-3.0e38), np.float64(1e300)]
)
def test_other_scalars_are_looked_at_as_arrays_are(value):
    """accumulator A20"""
    leaf = LeafCheck("reward", ArraySpec((), np.dtype(np.float32)))
    if float(value) == 1e300:
        with pytest.raises(SpecError, match="^reward"):
            checked([leaf], [value])
    else:
        np.testing.assert_array_equal(np.asarray(checked([leaf], [value])[0], np.float32), np.float32(value))
