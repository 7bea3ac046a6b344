"""Small files of JSON with a checksum: a line with format, version and checksum, then the content.

    {"format":"headrace checkpoint","version":1,"xxh3_128":"..."}
    {...}

The reader trusts nothing in a file before the checksum is right.
"""

# Rules: replay Q7, Q11

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from headrace.errors import CheckpointError
from headrace.persist.whole_file import begins_with, write_whole

T = TypeVar("T")


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    xxh3_128: str


def checked_json(content: msgspec.Struct, format_name: str, version: int) -> bytes:
    """Returns the bytes of such a file."""
    body = msgspec.json.encode(content)
    head = msgspec.json.encode(_Head(format_name, version, xxhash.xxh3_128_hexdigest(body)))
    return head + b"\n" + body


def write_checked_json(path: Path, content: msgspec.Struct, format_name: str, version: int) -> None:
    """Writes such a file; see `write_whole`."""
    write_whole(path, [checked_json(content, format_name, version)])


def has_head(path: Path, format_name: str) -> bool:
    """Returns whether a file begins as one of this format does, of any version, damaged further on or not."""
    return begins_with(path, f'{{"format":"{format_name}",'.encode())


def read_checked_json(path: Path, kind: type[T], format_name: str, version: int) -> T:
    """Reads a file that `write_checked_json` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, of another format, or of a version that is not known here.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: expected a {format_name}, got {error.strerror or error}") from error
    line, newline, body = content.partition(b"\n")
    return checked_content(path, line, body if newline else None, kind, format_name, version)


def checked_content(
    path: Path, line: bytes, body: bytes | None, kind: type[T], format_name: str, version: int
) -> T:
    """Decodes the body that stands under this head, as `read_checked_json` does; None stands for no body."""
    has_body, body = body is not None, body or b""
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: expected the head of a {format_name}, got {line[:80]!r}") from error
    if head.format != format_name:
        raise CheckpointError(f"{path}: expected a {format_name}, got {head.format!r:.80}")
    if head.version != version:
        raise CheckpointError(
            f"{path}: expected version {version} of the format, got version {head.version}; read it with the release "
            "of headrace that wrote it"
        )
    expected = _Head(format_name, version, xxhash.xxh3_128_hexdigest(body))
    if not has_body or line != msgspec.json.encode(expected):
        raise CheckpointError(f"{path}: expected the checksum {expected.xxh3_128}: the file is damaged")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: expected a {format_name}: {error}") from error
