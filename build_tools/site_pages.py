"""A hook of mkdocs: the pages of the site that are not in docs/.

* `reference/`: each public name, with its docstring, a page for each public module. The names are read from the
  package itself, so none can be forgotten.
* `design/`, the pages of `bench/`, `SECURITY.md`, `CHANGELOG.md` and others of the repository that a page links to, and
  each example as a page with its code.

Pages are written for the repository, where a link to `../examples/her.py` leads to a file. Such links are changed here.
"""

from __future__ import annotations

import inspect
import os
import posixpath
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import headrace as hr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Of the repository, beside docs/.
KEPT = [
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "changes/README.md"),
    *("bench/README.md", "bench/changes.md", "bench/readings.md"),
]
# Files without an ending that says what they are in, shown as text.
SHOWN_AS_TEXT = {"LICENSE", "CITATION.cff"}
LANGUAGES = {".py": "python", ".toml": "toml", ".ipynb": "json"}
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of `reference/` and `design/` into the navigation."""
    pages = {"reference/": [page for page, _ in reference_pages()], "design/": sorted(design_pages())}
    for entry in config.nav or []:
        if isinstance(entry, dict):
            for title, target in entry.items():
                if isinstance(target, str) and target in pages:
                    entry[title] = sorted(pages[target], key=lambda page: "README" not in page)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the repository, of the examples and of the reference."""
    from mkdocs.structure.files import File

    pages = {site_path(name): (ROOT / name).read_text() for name in KEPT}
    pages |= design_pages()
    pages |= {f"code/{path.name}.md": code_page(path) for path in linked_code()}
    pages |= dict(reference_pages())
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Leads links between files of the repository to pages of the site."""
    if page.file.src_uri.startswith(("reference/", "code/")):
        return markdown
    source = repository_path(page.file.src_uri)

    def changed(match: re.Match[str]) -> str:
        start, target, rest = match.groups()
        if "://" in target:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        wanted = site_path(file)
        return f"{start}{posixpath.relpath(wanted, posixpath.dirname(page.file.src_uri) or '.')}{rest}"

    return _LINK.sub(changed, markdown)


def site_path(file: str) -> str:
    """Returns the place on the site of a file: `views.md` of `docs/views.md`, `code/her.py.md` of `examples/her.py`."""
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if file == "README.md":  # docs/README.md is the first page
        return "repository.md"
    if is_code(file):
        return f"code/{posixpath.basename(file)}.md"
    return file


def repository_path(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    if page == "repository.md":
        return "README.md"
    return page if page in KEPT[1:] or page.startswith("design/") else f"docs/{page}"


def design_pages() -> dict[str, str]:
    """Path and text of each page of design/."""
    return {f"design/{page.name}": page.read_text() for page in (ROOT / "design").glob("*.md")}


def linked_code() -> list[Path]:
    """Files of code that a page links to."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("design/*.md"), *(ROOT / name for name in KEPT)]
    found = set()
    for page in pages:
        for match in _LINK.finditer(page.read_text()):
            path = Path(os.path.normpath(page.parent / match[2]))
            if is_code(path.name) and path.exists():
                found.add(path)
    names = [path.name for path in found]
    assert len(set(names)) == len(names), f"two files of one name: {sorted(names)}"
    return sorted(found)


def is_code(file: str) -> bool:
    """Whether a file is shown as a page with its text."""
    name = posixpath.basename(file)
    return name in SHOWN_AS_TEXT or posixpath.splitext(name)[1] in LANGUAGES


def code_page(path: Path) -> str:
    """Returns a page with the code of one file."""
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n```{language}\n{path.read_text()}```\n"


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yields path and text of a page for the flat names, and of one for each public module."""
    flat = {name: getattr(hr, name) for name in sorted(hr.__all__)}
    modules = {name: value for name, value in flat.items() if isinstance(value, ModuleType)}
    shown = {name: value for name, value in flat.items() if not isinstance(value, ModuleType | str)}
    pages = {"hr": shown} | {
        name: {each: value for each, value in members(module).items() if value not in shown.values()}
        for name, module in modules.items()
    }
    head = "# Reference\n\nEvery public name. Names that are missing here may change without notice.\n"
    lines = []
    for page, names in pages.items():
        prefix = "hr" if page == "hr" else f"hr.{page}"
        text = (
            "The names of `import headrace as hr`." if page == "hr" else inspect.getdoc(modules[page]) or ""
        )
        yield f"reference/{page}.md", page_of(prefix, text, names)
        links = (f"[`{prefix}.{name}`]({page}.md#{identifier(value)})" for name, value in names.items())
        lines.append(f"\n## [{prefix}]({page}.md)\n\n" + ",\n".join(links) + "\n")
    yield "reference/README.md", head + "".join(lines)


def members(module: ModuleType) -> dict[str, Any]:
    """The public names of a public module: its `__all__`, or all without an underscore that are its own."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [name for name, value in vars(module).items() if not name.startswith("_") and is_ours(value)]
    found = {name: getattr(module, name) for name in sorted(listed)}
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def is_ours(value: Any) -> bool:
    """Whether a class or function is of this package."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("headrace")


def identifier(value: Any) -> str:
    """The full name under which mkdocstrings finds an object, which is the anchor of its heading, too."""
    return f"{value.__module__}.{value.__qualname__}"


def page_of(title: str, text: str, names: dict[str, Any]) -> str:
    """Returns a page of the reference: its text, then the docstring of each name."""
    parts = [f"::: {identifier(value)}\n    options:\n      heading_level: 2" for value in names.values()]
    return "\n\n".join([f"# {title}", text, *parts]) + "\n"
