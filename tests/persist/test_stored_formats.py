"""This release reads the files of earlier releases (docs/versions.md)."""

import json
import tarfile

import pytest
import stored_formats

RELEASES = sorted(path.stem for path in stored_formats.KEPT.glob("*.json"))


def expected(release):
    return json.loads((stored_formats.KEPT / f"{release}.json").read_text())


@pytest.mark.parametrize("kind", stored_formats.KINDS)
@pytest.mark.parametrize("release", RELEASES)
def test_a_replay_of_an_earlier_release_draws_what_it_would_have_drawn(release, kind, tmp_path, tools):
    with tarfile.open(stored_formats.KEPT / f"{release}-{kind}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with stored_formats.opened(kind, tmp_path, tools) as replay:
        assert stored_formats.draws(replay, tools) == expected(release)["draws"][kind]


def test_files_of_each_format_that_this_code_writes_are_kept():
    """A format with a new version needs files of a release that has it: tests/support/stored_formats.py makes them."""
    assert stored_formats.versions() in [expected(release)["versions"] for release in RELEASES]
