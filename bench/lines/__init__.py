"""The same DQN with three replay buffers, to compare the lines that a user writes: `count_lines` counts them."""

from __future__ import annotations

import ast
from pathlib import Path


def count_lines(path: Path) -> int:
    """Returns the number of lines with code of a program, without imports, docstrings, comments and empty lines."""
    source = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = source.splitlines()
    code = (
        number for number, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#")
    )
    return sum(number not in left_out for number in code)
