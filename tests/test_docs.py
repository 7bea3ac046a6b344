"""The pages are right: their examples print what they say, their links lead somewhere, their names exist."""

import doctest
import re
from pathlib import Path

import pytest

import headrace as hr

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("design/*.md"))]
SESSIONS = [page for page in PAGES if ">>> " in page.read_text()]


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


@named(SESSIONS)
def test_examples_print_what_the_page_says(page):
    # A fence would be read as printed text.
    text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert test.examples
    report = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        test, out=report.append
    )
    assert not report, "".join(report)


@named(PAGES)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@named(PAGES)
def test_names_exist(page):
    for name in sorted(set(re.findall(r"\bhr\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", page.read_text()))):
        found = hr
        for part in name.split("."):
            assert hasattr(found, part), f"hr.{name}"
            found = getattr(found, part)


@pytest.mark.parametrize("folder", ["docs", "design"])
def test_the_index_names_every_page(folder):
    index = (ROOT / folder / "README.md").read_text()
    pages = {page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\((\w+\.md)\)", index))
