"""A store on disk whose machine fails: what the disk holds is made up, and the store is opened again.

    power.py SEED ROUNDS      so many rounds, each a history of its own; prints how much was found

The system may write a changed block of 4096 bytes of a mapped file at any time after it changed, in any order, and it
may never come to it. A file is as it was at its last `fsync`, but for any of the later versions of each block; a new
name, or a new content under it, may be there or not until the folder is synced. `Blocks` keeps all these versions: it
looks at all files at many moments and notes each block that has changed. `compose` draws one of the states that the
disk may have been in.
"""

import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from headrace.persist.disk import store_files
from headrace.store.pages import retained

sys.path.insert(0, str(Path(__file__).parent))
import kills

from headrace.replay.public import core_of

BLOCK = 4096


class Disk:
    """What the disk may hold of a folder, from what the files held in memory at the moments that were looked at.

    A file is known by its inode; which names lead to which inodes changes with the folder. Of both the synced state
    is certain, and every later one is possible.
    """

    def __init__(self, folder):
        self.folder = folder
        self.synced = {}  # inode -> its bytes when it was synced last
        self.later = defaultdict(lambda: defaultdict(list))  # inode -> block -> versions since
        self.now = {}  # inode -> bytes
        self.names = {}  # name -> inode, of the folder as it was synced
        self.later_names = []  # such maps since
        self._open = {}  # an inode that is open is not used again

    def begin_with_what_is_there(self):
        """All of it was on the disk when the machine was started."""
        for path in self.folder.iterdir():
            self.file_synced(path.stat().st_ino)
        self.folder_synced()

    def look(self):
        names = {}
        for path in self.folder.iterdir():
            inode = path.stat().st_ino
            names[path.name] = inode
            if inode not in self._open:
                self._open[inode] = open(path, "rb")  # noqa: SIM115
            self._note(inode, np.fromfile(path, np.uint8))
        if names != (self.later_names or [self.names])[-1]:
            self.later_names.append(names)

    def close(self):
        for file in self._open.values():
            file.close()

    def _note(self, inode, content):
        before = self.now.get(inode, np.zeros(0, np.uint8))
        size = max(len(before), len(content))
        padded = [np.zeros(-(-size // BLOCK) * BLOCK, np.uint8) for _ in range(2)]
        padded[0][: len(before)], padded[1][: len(content)] = before, content
        blocks = [each.reshape(-1, BLOCK) for each in padded]
        for block in np.flatnonzero((blocks[0] != blocks[1]).any(axis=1)).tolist():
            self.later[inode][block].append(blocks[1][block].copy())
        self.now[inode] = content

    def file_synced(self, inode):
        self.look()
        self.synced[inode] = self.now[inode].copy()
        self.later.pop(inode, None)

    def folder_synced(self):
        self.look()
        if self.later_names:
            self.names = self.later_names[-1]
            self.later_names = []

    def compose(self, target, random):
        """One of the states that the disk may be in, as a folder; returns it."""
        maps = [self.names, *self.later_names]
        # Most often all that was there, in a tenth of the states some of it.
        likely = random.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        names = dict(maps[-1] if random.random() < likely else maps[random.integers(len(maps))])
        target.mkdir()
        for name, inode in names.items():
            synced = self.synced.get(inode, np.zeros(0, np.uint8))
            # A size is known as soon as the file is: what was never written is zeros.
            size = len(self.now[inode])
            content = np.zeros(-(-size // BLOCK) * BLOCK, np.uint8)
            content[: min(size, len(synced))] = synced[:size]
            for block, versions in self.later.get(inode, {}).items():
                if (block + 1) * BLOCK <= len(content) and random.random() < likely:
                    last = random.random() < 0.7
                    version = versions[-1 if last else random.integers(len(versions))]
                    content[block * BLOCK : (block + 1) * BLOCK] = version
            content[:size].tofile(target / name)
        return target


@contextmanager
def watched(folder):
    """All syncs within are noted; gives the `Disk`."""
    disk = Disk(folder)
    fsync, replace = os.fsync, os.replace

    def noted(descriptor):
        fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path == folder:
            disk.folder_synced()
        elif path.parent == folder:
            disk.file_synced(os.fstat(descriptor).st_ino)

    def replaced(source, target):
        disk.look()
        replace(source, target)
        disk.look()

    with ExitStack() as patches:
        patches.callback(disk.close)
        patches.enter_context(mock.patch.object(os, "fsync", noted))
        patches.enter_context(mock.patch.object(os, "replace", replaced))
        yield disk


@contextmanager
def next_boot(number):
    """The machine has been started anew."""
    with mock.patch.object(store_files, "boot_id", return_value=number):
        yield


def items_of(found):
    """The items of each table by key, as `kills.dump` tells them."""
    return {
        name: {
            key: (window, rewards, observations)
            for key, window, rewards, observations in zip(
                table["keys"], table["windows"], table["rewards"], table["observations"], strict=True
            )
        }
        for name, table in found.items()
    }


def still_there(items, replay):
    """Those that no call has removed: others may be missing after a failure."""
    kept = {name: set(table["keys"]) for name, table in kills.dump(replay).items()}
    return {
        name: {key: item for key, item in table.items() if key in kept[name]} for name, table in items.items()
    }


class Round:
    """One history with durable flushes, and the failures that are made up on the way."""

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed
        self.random = np.random.default_rng(seed)
        self.found = defaultdict(int)

    def run(self, calls, failures):
        """A history of some calls, in which the machine fails at some moments."""
        few = int(self.random.integers(1, 9))
        with (
            next_boot(1),
            watched(self.folder / "store") as disk,
            mock.patch.object(retained, "_FEWEST", few),
        ):
            (self.folder / "store").mkdir()
            replay = kills.open_replay(self.folder / "store")
            history = kills.History(replay, self.seed)
            durable = None
            for number in range(calls):
                history.call()
                disk.look()
                if durable is not None:
                    durable = durable[0], still_there(durable[1], replay)
                if self.random.random() < 0.02:
                    core_of(replay).sync()
                    state = kills.dump(replay)
                    durable = state, items_of(state)
                if durable is not None and number in failures:
                    self.fail(disk, durable)
                if self.random.random() < 0.01:
                    # As a kill does; the machine goes on.
                    history.writer._rows._closed = True
                    core_of(replay)._disk.abandon()
                    replay = kills.open_replay(self.folder / "store", 64)
                    history, before = kills.History(replay, self.seed + number), history
                    history.number = before.number
                    self.found["kills"] += 1
            history.writer._rows._closed = True
            arena = core_of(replay)._disk._points._arena
            if arena is not None:
                self.found["pages given up"] += int(
                    (arena.array(0, (arena.nbytes // 8,), np.int64) > 0).sum()
                )
            if self.random.random() < 0.5:
                replay.close()
                self.fail(disk, (kills.dump(replay), items_of(kills.dump(replay))))
            else:
                core_of(replay)._disk.abandon()

    def fail(self, disk, durable):
        """The machine fails, and perhaps once more soon after."""
        state, items = durable
        target = disk.compose(self.folder / "failed", self.random)
        try:
            with next_boot(2), watched(target) as disk_of_next:
                disk_of_next.begin_with_what_is_there()
                replay = kills.open_replay(target, 64)
                disk_of_next.look()
                self.compare(replay, state, items)
                # It is as good as new, and as durable as before.
                history = kills.History(replay, self.seed + 1)
                history.number = 100_000
                for _ in range(10):
                    history.call()
                    disk_of_next.look()
                    items = still_there(items, replay)
                kills.check_rows(kills.dump(replay))
                history.writer._rows._closed = True
                core_of(replay)._disk.abandon()
                again = disk_of_next.compose(self.folder / "again", self.random)
            with next_boot(3):
                replay = kills.open_replay(again, 64)
                self.compare(replay, state, items)
                core_of(replay)._disk.abandon()
            self.found["failures"] += 2
        finally:
            for name in ("failed", "again"):
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def compare(self, replay, state, items):
        found = kills.dump(replay)
        kills.check_rows(found)
        kills.check_references(replay)
        for name, table in items_of(found).items():
            then = dict(zip(state[name]["keys"], state[name]["priorities"], strict=True))
            for key, item in items[name].items():
                assert table.get(key) == item, (name, key, item, table.get(key))
                self.found["items kept"] += 1
            for key, item in table.items():
                # Nothing else than what was durable, as it was then.
                assert key in then, (name, key)
                assert items_of(state)[name][key] == item
            self.found["items lost that were removed"] += len(then) - len(table)


def rounds(seed, count):
    found = defaultdict(int)
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            each = Round(Path(folder), 10_000 * seed + number)
            each.run(400, set(range(5, 400, 40)))
            for name, value in each.found.items():
                found[name] += value
    return dict(found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(rounds(*map(int, sys.argv[1:]))))
