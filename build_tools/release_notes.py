"""Prints the part of CHANGELOG.md that belongs to one version: `python build_tools/release_notes.py 0.1.0`.

Refuses, with a message, a version that differs from the one in pyproject.toml or that has no part in the change log, so
that no release is published under a wrong tag or without its changes.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(version: str, change_log: str, project_version: str) -> str:
    """Returns the changes of `version`, without its heading.

    Raises:
        SystemExit: the version is not the project's, or the change log does not have it.
    """
    if version != project_version:
        raise SystemExit(
            f"expected the version of pyproject.toml, {project_version}, got the tag of {version}"
        )
    found = re.search(
        rf"^## {re.escape(version)} .*?\n(.*?)(?=^## |\Z)", change_log, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise SystemExit(
            f"CHANGELOG.md has no part for {version}: run `towncrier build` and commit the result"
        )
    return found[1].strip()


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sys.stdout.write(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text(), project["version"]) + "\n")
