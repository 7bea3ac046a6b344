"""Docstrings and pages say the thing itself: users have no list of rules to look a number up in."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]

SPECIFICATIONS = (
    "accumulator", "collectors", "datasets", "loaders", "memories", "performance", "replay", "rollouts", "server",
    "trajectories", "views",
)  # fmt: skip
# "replay L5", "(D3)". A dtype such as U7 or an algorithm such as TD3 stands alone, outside brackets.
RULE = re.compile(rf"\b(?:{'|'.join(SPECIFICATIONS)})\s+[A-Z]{{1,3}}\d+\b|\([A-Z]{{1,2}}\d+\)")


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("text", ["Drawn in order (replay L5).", "as (D3)", "(collectors\nCF5, CF7)"])
def test_a_citation_is_found(text):
    assert RULE.search(text)


@pytest.mark.parametrize("text", ["np.dtype('U7')", "TD3 on Pendulum", "the replay has 3 tables", "(T + 1)"])
def test_other_words_are_none(text):
    assert not RULE.search(text)


def test_no_docstring_cites_a_rule():
    found = {
        (path.name, cite) for path in SOURCES for text in docstrings(path) for cite in RULE.findall(text)
    }
    assert found == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_page_cites_a_rule(page):
    assert RULE.findall(page.read_text(encoding="utf-8")) == []
