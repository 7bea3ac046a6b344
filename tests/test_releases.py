"""A release says the same everywhere: tag, version, change log, citation."""

import importlib.util
import re
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


def test_the_fragments_make_a_change_log_that_a_release_can_use(release_notes):
    draft = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--date", "2027-01-01"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=50,
    ).stdout  # fmt: skip
    written = (ROOT / "CHANGELOG.md").read_text().replace("<!-- changes start here -->", draft)
    fragments = [path for path in (ROOT / "changes").glob("+*.md") if path.read_text().strip()]
    changes = re.findall(r"^- ", release_notes("9.9.9", written, "9.9.9"), re.MULTILINE)
    assert len(changes) >= len(fragments) > 0


def test_the_citation_names_this_version():
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == VERSION
