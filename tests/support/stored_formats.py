"""The files of a release, kept in the repository, and the draws that it must give in each later release.

`python tests/support/stored_formats.py` writes the files of this version of the code into tests/persist/stored_formats.
"""

import json
import shutil
import sys
import tarfile
import tempfile
from importlib import util
from pathlib import Path

import headrace as hr
from headrace.persist.checkpoint import manifest as checkpoint_manifest
from headrace.persist.disk import closed_store
from headrace.persist.disk import manifest as store_manifest

KEPT = Path(__file__).parents[1] / "persist" / "stored_formats"
KINDS = ("checkpoint", "closed-store", "killed-store")
ROUNDS = 12
CHECKPOINT, STORE, CLOSED = checkpoint_manifest, store_manifest, closed_store


def versions():
    """The versions of the formats that this code writes."""
    return {
        CHECKPOINT.FORMAT: CHECKPOINT.VERSION,
        STORE.FORMAT: STORE.VERSION,
        CLOSED.FORMAT: CLOSED.VERSION,
    }


def opened(kind, folder, tools):
    """The replay of an unpacked folder."""
    if kind == "checkpoint":
        return hr.Replay.load(folder)
    return hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), path=folder / "store", seed=3)


def draws(replay, tools):
    """The next batches of each table as JSON: keys, priorities, how often each item was drawn, and the column `n`."""
    found = []
    for number in range(ROUNDS):
        for name in tools.NAMES:
            batch = tools.draw(replay, name, 1 + number % 3)
            if batch is not None:
                info = batch.info
                numbers = tools.SIGNATURE.flatten(batch.data)["n"]
                parts = (info.keys, info.priorities, info.times_sampled, numbers)
                found.append([name, *(part.tolist() for part in parts)])
    return found


def make(folder, tools):
    """Writes one folder of each kind, of replays with the same past."""
    for kind in KINDS:
        path = None if kind == "checkpoint" else folder / "live" / kind
        replay = hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), capacity=600, seed=1, path=path)
        past = tools.Past(replay)
        past.go(150)
        target = folder / kind
        target.mkdir()
        if kind == "checkpoint":
            replay.save(target)
        elif kind == "closed-store":
            past.writer.close()
            replay.close()
            shutil.copytree(path, target / "store")
        else:  # what a killed process leaves is what the files hold at that instant
            shutil.copytree(path, target / "store")
        replay.close()


def main():
    """Replaces the kept files by those of this code."""
    spec = util.spec_from_file_location("conftest", KEPT.parent / "conftest.py")
    conftest = util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    release = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, conftest.Tools)
        expected = {"versions": versions(), "draws": {}}
        for kind in KINDS:
            with tarfile.open(KEPT / f"{release}-{kind}.tar.xz", "w:xz") as archive:
                archive.add(folder / kind, arcname=".")
            with opened(kind, folder / kind, conftest.Tools) as replay:
                expected["draws"][kind] = draws(replay, conftest.Tools)
    (KEPT / f"{release}.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
