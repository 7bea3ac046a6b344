"""Prints the part of CHANGELOG.md that belongs to one version: `python build_tools/release_notes.py 0.1.0`.

Refuses, with a message, a version that differs from the one in pyproject.toml, that has no part with a date in the
change log, or that leaves fragments out, so that no release is published under a wrong tag or without its changes.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(version: str, change_log: str, project_version: str, fragments: Sequence[str] = ()) -> str:
    """Returns the changes of `version`, without its heading.

    Args:
        version: of the tag.
        change_log: the text of CHANGELOG.md.
        project_version: in pyproject.toml.
        fragments: the names of those that are left.

    Raises:
        SystemExit: the version is not the project's, the change log does not have it with its date, or there are
            fragments.
    """
    if version != project_version:
        raise SystemExit(
            f"expected the version of pyproject.toml, {project_version}, got the tag of {version}"
        )
    found = re.search(
        rf"^## {re.escape(version)} \((.*?)\)\n(.*?)(?=^## |\Z)", change_log, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise SystemExit(
            f"CHANGELOG.md has no part for {version}: run `towncrier build` and commit the result"
        )
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise SystemExit(f"CHANGELOG.md: expected the date of {version}, got ({found[1]})")
    if fragments:
        raise SystemExit(
            f"the change log lacks {', '.join(fragments)} of changes/: see Releases in CONTRIBUTING.md"
        )
    return found[2].strip()


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = sorted(path.name for path in (ROOT / "changes").glob("+*.md"))
    log = (ROOT / "CHANGELOG.md").read_text()
    sys.stdout.write(notes(sys.argv[1], log, project["version"], left) + "\n")
