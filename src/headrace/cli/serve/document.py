"""A TOML file whose errors name the file, the line and the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
import msgspec

from headrace.errors import StoreFull

Key = tuple[str, ...]
_Section = TypeVar("_Section", bound=msgspec.Struct)
# Parts of the messages of msgspec.
_PLACE = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$")
_NAMED = re.compile(r"Object (contains unknown|missing required) field `(.*)`")
# How messages of classes begin: with the name of an argument, behind that of the table or class.
_ARGUMENT = re.compile(r"(?:table '.*?': |\w+: )?(\w+): (.*)", re.DOTALL)
_END_OF_LINE = re.compile(r"\(at line (\d+), column \d+\)")


class Document:
    """A TOML file that is read, and checked section by section.

    Args:
        path: of the file.

    Attributes:
        path: of the file.
        values: its tables, as dicts.

    Raises:
        click.BadParameter: the file cannot be read, or is not TOML.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.BadParameter(f"{path}: expected a TOML file, got {error}") from error
        try:
            self.values = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            found = _END_OF_LINE.search(str(error))
            line = int(found[1]) if found else self._text.count("\n") + 1
            raise click.BadParameter(f"{path}:{line}: expected TOML, got: {error}") from error

    def section(self, key: Key, kind: type[_Section]) -> _Section:
        """Returns the table at a key as a record of a class.

        Raises:
            click.BadParameter: an unknown key, a missing key, or a value of another type.
        """
        try:
            return msgspec.convert(self.value(key), kind)
        except msgspec.ValidationError as error:
            raise self._explained(str(error), key, kind) from error

    def value(self, key: Key) -> Any:
        """Returns what is written at a key that the file has."""
        found: Any = self.values
        for name in key:
            found = found[name]
        return found

    def error(self, key: Key, text: str) -> click.BadParameter:
        """Returns the error of a key."""
        place = f"{self.path}:{line_of(self._text, key)}"
        return click.BadParameter(f"{place}: {'.'.join(key)}: {text}" if key else f"{place}: {text}")

    @contextmanager
    def at(self, key: Key) -> Iterator[None]:
        """Turns the ValueError, TypeError, ImportError or StoreFull of a block into the error of a key."""
        try:
            yield
        except (ValueError, TypeError, ImportError, StoreFull) as error:
            raise self.error(*self._of_argument(key, str(error))) from error

    def _of_argument(self, key: Key, text: str) -> tuple[Key, str]:
        """Returns the key of the argument with whose name a class's message begins, and the rest of the message."""
        found = _ARGUMENT.fullmatch(text)
        if found is None:
            return key, text
        inner = (*key, found[1])
        return (inner, found[2]) if _holds(self.values, inner) else (key, text.removeprefix(f"{key[-1]}: "))

    def _explained(self, text: str, key: Key, kind: type[msgspec.Struct]) -> click.BadParameter:
        parts = _PLACE.fullmatch(text)
        assert parts is not None
        inner = _steps(parts[2] or "")
        named = _NAMED.fullmatch(parts[1])
        if named is None:
            choices = "".join(
                f"; expected one of {', '.join(found)}" for found in [_choices(kind, inner)] if found
            )
            return self.error(key + inner, _in_words(parts[1]) + choices)
        if named[1] == "missing required":
            return self.error(key + inner, f"`{named[2]}` is missing; add it to this table")
        return self.error(
            (*key, *inner, named[2]), f"unknown key; expected one of {', '.join(_keys(kind, inner))}"
        )


def line_of(text: str, key: Key) -> int:
    r"""Returns the number of the line at which a key, or the first key below it, is written.

    Args:
        text: a valid TOML document.
        key: names of tables, and the name of a value or table in the last of them.

    >>> line_of("a = 1\n[b.c]\nd = [\n  2,\n]", ("b", "c", "d")), line_of("a = 1\n[b.c]\n", ("b",))
    (3, 2)
    """
    lines = text.split("\n")
    before = 0  # Lines that are complete statements, and do not have the key.
    for count in range(1, len(lines) + 1):
        try:
            found = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # A value goes on in the next line.
        if _holds(found, key):
            break
        before = count
    return min(before + 1, len(lines))


def _holds(table: Any, key: Key) -> bool:
    for name in key:
        if not isinstance(table, dict) or name not in table:
            return False
        table = table[name]
    return True


def _steps(path: str) -> Key:
    """Returns the names of a path of msgspec, up to the first that it does not tell."""
    return tuple(re.findall(r"\.(\w+)", path.partition("[")[0]))


def _in_words(text: str) -> str:
    """Returns a message of msgspec with the words of TOML."""
    text = text.replace(" | null`", "`").replace("`object`", "a table").replace("`str`", "a string")
    return text[:1].lower() + text[1:]


def _types_at(kind: Any, steps: Key) -> list[Any]:
    """Returns the types that a value within a section may have; those of a union one by one."""
    if not steps:
        return list(get_args(kind)) if isinstance(kind, UnionType) else [kind]
    fields = (
        field for each in _types_at(kind, ()) if _is_struct(each) for field in msgspec.structs.fields(each)
    )
    return [found for field in fields if field.name == steps[0] for found in _types_at(field.type, steps[1:])]


def _keys(kind: Any, steps: Key) -> list[str]:
    """Returns the names of the keys that a table within a section may have."""
    structs = [each for each in _types_at(kind, steps) if _is_struct(each)]
    tags = [each.__struct_config__.tag_field for each in structs if each.__struct_config__.tag_field]
    return list(
        dict.fromkeys([*tags, *(field.name for each in structs for field in msgspec.structs.fields(each))])
    )


def _choices(kind: Any, steps: Key) -> list[str]:
    """Returns the values that a string within a section may have; empty if any string will do."""
    tagged = [each.__struct_config__ for each in _types_at(kind, steps[:-1]) if _is_struct(each)]
    tags = [each.tag for each in tagged if steps and each.tag_field == steps[-1]]
    literals = [each for each in _types_at(kind, steps) if get_origin(each) is Literal]
    return list(map(repr, [*tags, *(value for each in literals for value in get_args(each))]))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
