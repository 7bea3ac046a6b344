"""Lines and errors of settings."""

import tomllib

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.serve.document import Document, line_of

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["1", '"x"', "[\n  1,\n  2,\n]", '"""\ny = 3\n"""', "{ e = 1, f = [2] }"])
LINES = st.one_of(
    st.builds("{} = {}".format, NAMES, VALUES),
    st.builds("{}.{} = {}".format, NAMES, NAMES, VALUES),
    st.builds("[{}.{}]".format, NAMES, NAMES),
    st.builds("[{}]".format, NAMES),
    st.sampled_from(["", "# a = 1"]),
)


def paths(table, above=()):
    for name, value in table.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


@given(st.lists(LINES, max_size=8))
def test_the_line_of_a_key_is_that_of_the_statement_that_made_it(statements):
    made, first, line = {}, {}, 1
    kept = []
    for statement in statements:
        try:
            made = tomllib.loads("\n".join([*kept, statement]))
        except tomllib.TOMLDecodeError:
            continue  # A second value of a key.
        kept.append(statement)
        for path in paths(made):
            first.setdefault(path, line)
        line += statement.count("\n") + 1
    for path, expected in first.items():
        assert line_of("\n".join(kept), path) == expected


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("a = 1\nb = = 2\n")
    with pytest.raises(click.BadParameter, match=r"x\.toml:2: expected TOML, got: "):
        Document(path)
    path.write_text("a = 1\nb = [\n")
    with pytest.raises(click.BadParameter, match=r"x\.toml:3: expected TOML, got: .*end of document"):
        Document(path)
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(click.BadParameter, match=r"x\.toml: expected a TOML file, got .*utf-8"):
        Document(path)
    with pytest.raises(click.BadParameter, match=r"y\.toml: expected a TOML file, got .*No such file"):
        Document(tmp_path / "y.toml")
