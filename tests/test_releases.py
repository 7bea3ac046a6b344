"""A release says the same everywhere: tag, version, change log, citation."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LOG = """# Changes

<!-- changes start here -->

## 0.2.0 (2027-01-02)

### New

- Second.

## 0.1.0 (2026-12-01)

### New

- First.
"""


@pytest.fixture(scope="module")
def release_notes():
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "build_tools" / "release_notes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.notes


def test_each_release_has_its_own_changes(release_notes):
    assert release_notes("0.2.0", LOG, "0.2.0") == "### New\n\n- Second."
    assert release_notes("0.1.0", LOG, "0.1.0") == "### New\n\n- First."


def test_a_wrong_tag_is_refused(release_notes):
    with pytest.raises(
        SystemExit, match=r"expected the version of pyproject.toml, 0.2.0, got the tag of 0.2.1"
    ):
        release_notes("0.2.1", LOG, "0.2.0")


def test_a_version_without_changes_is_refused(release_notes):
    with pytest.raises(SystemExit, match=r"CHANGELOG.md has no part for 0.3.0: run `towncrier build`"):
        release_notes("0.3.0", LOG, "0.3.0")


def test_a_version_without_a_date_or_with_fragments_left_is_refused(release_notes):
    with pytest.raises(SystemExit, match=r"expected the date of 0.2.0, got \(unreleased\)"):
        release_notes("0.2.0", LOG.replace("2027-01-02", "unreleased"), "0.2.0")
    with pytest.raises(SystemExit, match=r"lacks \+a.fix.md, \+b.fix.md of changes/"):
        release_notes("0.2.0", LOG, "0.2.0", ["+a.fix.md", "+b.fix.md"])


def test_the_fragments_make_a_change_log_that_a_release_can_use(release_notes, tmp_path):
    """The fragments that there are now, and one of each type."""
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    for kind in ("feature", "change", "fix", "removal"):
        (tmp_path / "changes" / f"+example.{kind}.md").write_text(f"An example of a {kind}.\n")
    fragments = list((tmp_path / "changes").glob("+*.md"))
    arguments = ["--config", str(ROOT / "pyproject.toml"), "--dir", str(tmp_path), "--version", "9.9.9"]
    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", *arguments, "--date", "2027-01-01", "--yes"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip
    written = (tmp_path / "CHANGELOG.md").read_text()
    found = release_notes("9.9.9", written, "9.9.9")
    assert len(re.findall(r"^- ", found, re.MULTILINE)) >= len(fragments) >= 4
    assert re.findall(r"^### (\w+)", found, re.MULTILINE) == ["New", "Changed", "Mended", "Removed"]
    # Earlier versions stay below.
    assert (
        written.partition("## 0.1.0 ")[2]
        == (ROOT / "CHANGELOG.md").read_text().partition("## 0.1.0 ")[2]
        != ""
    )


def test_the_first_release_is_told_by_area(release_notes):
    log = re.sub(
        r"^## 0.1.0 \(.*\)", "## 0.1.0 (2027-01-01)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )
    found = release_notes("0.1.0", log, "0.1.0")
    assert {"Replays", "Collectors", "Command line"} <= set(re.findall(r"^### (.+)", found, re.MULTILINE))
    assert all((ROOT / page).is_file() for page in re.findall(r"\]\(([^)#]+)", found))


def test_the_citation_names_this_version():
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == VERSION
