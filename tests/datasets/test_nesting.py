"""Nested mappings from values by path."""

import pytest

import headrace as hr
from headrace.datasets.nesting import nested


@pytest.mark.parametrize("values", [{"a": 1, "a/b": 2}, {"a/b": 2, "a": 1}, {"x/a": 1, "x/a/b/c": 2}])
def test_a_path_through_a_value_is_refused(values):
    with pytest.raises(hr.SpecError, match=r"\ba\b.* array and has entries below it"):
        nested(values)


def test_values_come_back_under_their_paths():
    assert nested({}) == {}
    assert nested({"b/c": 1, "a": {}, "b/d/e": 2}) == {"b": {"c": 1, "d": {"e": 2}}, "a": {}}
