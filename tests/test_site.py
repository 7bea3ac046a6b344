"""The site of the documentation has every page and every public name. `scripts/docs` builds it and checks links."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import headrace as hr

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "build_tools" / "site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"- (?:[\w ]+: )?(\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= listed


def test_every_public_name_has_its_docstring_on_one_page(site):
    pages = dict(site.reference_pages())
    shown = re.findall(r"^::: (\S+)$", "\n".join(pages.values()), re.MULTILINE)
    assert len(shown) == len(set(shown))
    modules = [hr, *(value for name in hr.__all__ if isinstance(value := getattr(hr, name), ModuleType))]
    public = [
        value
        for module in modules
        for name in getattr(module, "__all__", [])
        if not isinstance(value := getattr(module, name), ModuleType | str)
    ]
    assert len(public) > 100
    assert {site.identifier(value) for value in public} <= set(shown)
    assert {
        "headrace.tables.description.rate_limiters.MinSize",
        "headrace.weights.shared_memory.SharedMemory",
    } <= {*shown}, "modules without __all__ are there, too"


def test_links_of_the_repository_lead_to_pages_of_the_site(site):
    assert site.site_path("docs/views.md") == "views.md"
    assert site.site_path("docs/pictures/tables_queue.svg") == "pictures/tables_queue.svg"
    assert site.site_path("examples/her_bit_flipping.py") == "code/her_bit_flipping.py.md"
    assert site.site_path("README.md") == "repository.md"
    for page in ("repository.md", "views.md", "design/store.md", "bench/README.md"):
        assert site.site_path(site.repository_path(page)) == page
