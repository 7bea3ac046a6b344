"""Trees as JSON: descriptions that nobody wrote are refused."""

import json
from collections import deque

import pytest

import headrace as hr
from headrace import trees
from headrace.tree_json import node_from_json, node_to_json


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"kind": "set", "children": []},
        {"kind": "dict", "children": []},
        {"kind": "tuple", "children": {}},
        {"kind": "deque", "children": [{"leaf": 1}], "maxlen": 0},
        {"kind": "dict", "children": {"a/b": {"leaf": 1}}},
        {"kind": "dict", "children": {"": {"leaf": 1}}},
        {"kind": "namedtuple", "name": "X", "children": {"not a name": {"leaf": 1}}},
        {"kind": "dict"},
        {"leaf": "bad"},
    ],
)
def test_a_tree_that_nobody_wrote_is_refused(data):
    def leaf(value, path):
        raise hr.SpecError(f"{path}: {value}")

    with pytest.raises(hr.SpecError):
        node_from_json(data, leaf)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_a_tree_without_end_is_refused(kind):
    data = {"leaf": 1}
    for _ in range(100):
        data = {"kind": kind, "children": [data] if kind == "tuple" else {"a": data}}
    with pytest.raises(hr.SpecError, match="expected the description"):
        node_from_json(data, lambda value, path: value)


def test_containers_and_their_order_come_back():
    tree = {"b": (1, [2]), "a": deque([3], maxlen=4), "c": None}
    root = trees.compile_tree(tree, lambda value: isinstance(value, int))
    text = json.dumps(node_to_json(root, lambda value: {"leaf": value}))
    back = node_from_json(json.loads(text), lambda data, path: (path, data["leaf"]))
    assert [leaf.value for leaf in trees.leaves(back)] == [("a/0", 3), ("b/0", 1), ("b/1/0", 2)]
    built = trees.build(back, {leaf.path: leaf.value[1] for leaf in trees.leaves(back)})
    assert (built, list(built), built["a"].maxlen) == (tree, ["b", "a", "c"], 4)
