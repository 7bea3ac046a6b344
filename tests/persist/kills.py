"""Kills processes in the middle of their work on a store on disk, and looks at what is left. Run by test_kills.py.

    kills.py lines OPERATION STRIDE [OFFSET]   kill at every STRIDE-th line of Python that an operation runs, beginning
                                               with line OFFSET (with HEADRACE_PLAIN=1, of kernels too)
    kills.py random SEED COUNT                 kill long random histories at random moments

A killed store must be as it was at one of the moments at which a change was complete: after the last call that had
returned, or later, but not after the end of the call that was under way.
"""

import contextlib
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

import headrace as hr
from headrace.kernels import plain
from headrace.persist.disk.durable_ring import DurableRing
from headrace.replay.public import core_of
from headrace.server.serving.writers.row_writer import ServedRowWriter
from headrace.store.layout import LANES, LINKED_ROWS, REFERENCES
from headrace.store.pages.recovery import PageRecovery
from headrace.tables.description import selectors
from headrace.tables.items.items import Items
from headrace.tables.items.layout import LIVE, REAL
from headrace.tables.items.passes import pin_items

PACKAGE = str(Path(hr.__file__).parent)
SIGNATURE = hr.Signature.like({"observation": np.zeros(2), "reward": 0})
LANES_OF_WRITER = 2
RULES = [
    hr.ItemRule("uniform", 1),
    hr.ItemRule("heap", 2, end=hr.EndOfEpisode.PAD, lookahead=1),
    hr.ItemRule("limited", 1),
]


def tables(size=6):
    uniform, prioritized = selectors.Uniform(), selectors.Prioritized(0.5)
    fifo, heap = selectors.Fifo(), selectors.MinHeap()
    return [
        hr.Table("uniform", sampler=uniform, remover=fifo, max_size=size),
        hr.Table("heap", sampler=selectors.MaxHeap(), remover=heap, max_size=size),
        hr.Table("few", sampler=prioritized, remover=uniform, max_size=size, max_times_sampled=2),
        hr.Table(
            "distinct", sampler=selectors.Uniform(replacement=False), remover=prioritized, max_size=size
        ),
        hr.Table.queue("limited", size),
    ]


def open_replay(path, size=6):
    return hr.Replay(
        SIGNATURE,
        tables(size),
        path=path,
        capacity=None if (path / "manifest.json").exists() else 640,
        seed=3,
    )


# ---- what is there -------------------------------------------------------------------------------------------------


def dump(replay):
    """Everything that must survive, in plain numbers."""
    found = {}
    store = core_of(replay).store
    for name in replay.table_names:
        live = core_of(replay)._tables[name]  # Of a replay that is closed, too.
        items, slots = live.ring.arrays, live.ring._live_slots()
        windows = (
            items.windows[slots]
            if live.ring.has_windows
            else np.repeat(live.ring.window[None], len(slots), 0)
        )
        starts, counts = items.rows[slots].astype(np.int64), np.ascontiguousarray(windows[:, REAL])
        rows = np.empty((len(slots), int(counts.max(initial=1))), np.int64)
        store.window.rows_of_windows(starts, counts, rows)
        priorities = (
            items.priorities[slots] if len(items.priorities) else np.full(len(slots), items.common[0])
        )
        found[name] = {
            "keys": items.keys[slots].tolist(),
            "times": items.times[slots].tolist(),
            "priorities": priorities.tolist(),
            "windows": windows.tolist() if len(slots) else [],
            "touches": np.argsort(np.argsort(items.last_updates[slots])).tolist()
            if len(items.last_updates)
            else [],
            "rewards": [store.columns["reward"][row[row >= 0]].tolist() for row in rows],
            "observations": [store.columns["observation"][row[row >= 0]].tolist() for row in rows],
            "counts": [live.inserts, live.samples, live.deletes, live.ring.unique],
            "ignored": [live.updates, live.ignored_updates, live.ignored_deletes],
            "of writers": counts_of_writers(replay, name),
        }
    return found


def counts_of_writers(replay, table):
    """The numbers of items that clients' writers have made, as the disk knows them."""
    writers = core_of(replay)._disk._writers
    if writers is None:
        return []
    number = replay.table_names.index(table)
    return sorted(count for count in writers.state()[:, 4 + number].tolist() if count)


def check_rows(found):
    """No row is torn: both columns of a row were written in one step."""
    for table in found.values():
        for rewards, observations in zip(table["rewards"], table["observations"], strict=True):
            for reward, observation in zip(rewards, observations, strict=True):
                assert observation[0] == observation[1], observation
                # A final row has an observation alone.
                assert reward in (0, observation[0]), (reward, observation)


def check_references(replay):
    """Without writers, pages are held by items and links, as often as they should be."""
    store = core_of(replay).store
    with store.lock:
        store.reclaim()
        used = store._never_used
        mender = PageRecovery(store.arrays, used)
        for name in replay.table_names:
            pin_items(Items(core_of(replay).live_table(name).ring.arrays, mender.pins), 1)
        mender._count_links()
        for word in (REFERENCES, LINKED_ROWS):
            expected = mender.arrays.pages[:, word]
            got = np.where(store.arrays.pages[:used, LANES] > 0, store.arrays.pages[:used, word], 0)
            np.testing.assert_array_equal(got, expected)
        waiting = 0 if store.retained is None else len(store.retained)
        free = len(store._free) + len(store._retired) + waiting
        assert free == int((store.arrays.pages[:used, REFERENCES] == 0).sum())
        for name in replay.table_names:
            live = core_of(replay).live_table(name)
            assert live.inserts - live.deletes == live.ring.arrays.ring[LIVE] == len(live.ring)


class Moments:
    """Records the state at every moment at which a change of a table is complete."""

    def __init__(self, replay):
        self.replay = replay
        self.states = [dump(replay)]
        self._patched = {}

    def __enter__(self):
        moments = self
        for name in (
            "insert",
            "append",
            "remove",
            "clear",
            "update",
            "draw",
            "draw_fused",
            "draw_distinct",
            "shrink_to",
        ):
            original = self._patched[name] = getattr(DurableRing, name, None)

            def recorded(ring, *arguments, original=original, **options):
                result = original(ring, *arguments, **options)
                moments.note(ring)
                return result

            setattr(DurableRing, name, recorded)
        return self

    def __exit__(self, *error):
        for name, original in self._patched.items():
            setattr(DurableRing, name, original)

    def note(self, changed):
        """The counts of a table are in its ring before the table itself knows them."""
        state = dump(self.replay)
        for name in self.replay.table_names:
            ring = core_of(self.replay).live_table(name).ring
            if ring is changed:
                words = ring.arrays.ring
                state[name]["counts"] = [int(words[8]), int(words[9]), int(words[10]), ring.unique]
                state[name]["ignored"] = [int(words[11]), int(words[12]), int(words[13])]
        self.states.append(state)


# ---- random histories ----------------------------------------------------------------------------------------------


class History:
    """Random calls; the same seed makes the same ones."""

    def __init__(self, replay, seed):
        self.replay = replay
        self.random = np.random.default_rng(seed)
        self.writer = replay.writer(lanes=LANES_OF_WRITER, items=RULES, history=6, max_pending=10_000)
        self.number = 1

    def step(self):
        numbers = self.number + np.arange(LANES_OF_WRITER)
        self.number += LANES_OF_WRITER
        observation = np.repeat(numbers[:, None].astype(float), 2, axis=1)
        self.writer.append({"observation": observation, "reward": numbers})

    def end(self, lane=None):
        shape = (2,) if lane is not None else (LANES_OF_WRITER, 2)
        self.writer.end_episode({"observation": np.full(shape, -float(self.number))}, lane=lane)

    def create(self, table, length, priority):
        try:
            return self.writer.create_item(
                table, length, priority=priority, lane=int(self.random.integers(2))
            )
        except ValueError:
            return None

    def call(self):
        random = self.random
        if self.writer.pending > 20:
            self.replay.reset("limited")
            return
        what, name = random.random(), ("uniform", "heap", "few", "distinct")[random.integers(4)]
        if what < 0.35 or self.number == 1:
            self.step()
        elif what < 0.55:
            self.create(
                ("few", "distinct")[random.integers(2)], int(random.integers(1, 4)), float(random.random())
            )
        elif what < 0.62:
            with contextlib.suppress(ValueError):
                self.end(None if random.random() < 0.5 else int(random.integers(2)))
        elif what < 0.66:
            self.replay.reset(name)
        elif what < 0.70:
            self.replay.table(name).configure(max_size=int(random.integers(3, 40)))
        else:
            self.use(("uniform", "heap", "few", "distinct", "limited")[random.integers(5)], what)

    def use(self, name, what):
        count = int(self.random.integers(1, 4))
        try:
            keys = self.replay.sample(name, count, timeout=0).info.keys
        except (hr.DeadlineExceeded, ValueError):
            return
        if what < 0.85:
            values = self.random.random(count)
            self.replay.update_priorities(name, keys, values)
        elif what < 0.92:
            self.replay.delete(name, np.append(keys, np.uint64(10**12)))


def in_child(work):
    """Run `work(write)` in a child; returns what it has written, and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        code = 1
        try:
            work(lambda content: os.write(writing, content))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    return child, reading


def drain(reading):
    content = b""
    while piece := os.read(reading, 1 << 16):
        content += piece
    os.close(reading)
    return content


def random_kills(seed, count):
    random = np.random.default_rng(seed)
    late = 0
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            late += random_kill(Path(folder), seed * 1000 + number, random)
    return {"kills": count, "within a call": late}


def random_kill(folder, seed, random):
    calls = int(random.integers(1, 400))

    def work(write):
        history = History(open_replay(folder / "store"), seed)
        write(b".")
        for _ in range(10_000):
            history.call()
            write(b".")

    child, reading = in_child(work)
    reported = 0
    while reported <= calls:
        piece = os.read(reading, 1)
        assert piece, "the child ended by itself"
        reported += 1
    for _ in range(int(random.integers(0, 3000))):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    reported += len(drain(reading)) - 1
    allowed = states_around(folder / "reference", seed, reported)
    # Larger than any table was made: the settings given win, and nothing is to be removed by them.
    reopened = open_replay(folder / "store", 64)
    found = dump(reopened)
    check_rows(found)
    assert found in allowed, explain(found, allowed)
    check_references(reopened)
    # It is as good as new.
    history = History(reopened, seed + 1)
    history.number = 100_000
    for _ in range(60):
        history.call()
    check_rows(dump(reopened))
    history.writer.__exit__(ValueError, None, None) if not history.writer.pending else history.replay.reset(
        "limited"
    )
    reopened.close()
    again = open_replay(folder / "store", 64)
    check_references(again)
    again.close()
    return found != allowed[0]


def states_around(folder, seed, calls):
    """The states from the end of the last call that was reported to the end of the one after it."""
    replay = open_replay(folder)
    history = History(replay, seed)
    for _ in range(calls):
        history.call()
    with Moments(replay) as moments:
        history.call()
    moments.states.append(dump(replay))
    history.writer._rows._closed = True
    replay.close()
    return moments.states


def explain(found, allowed):
    lines = []
    for number, state in enumerate(allowed):
        for name, table in state.items():
            lines += [
                f"state {number}, {name}.{field}: {value} but {found[name][field]}"
                for field, value in table.items()
                if value != found[name][field]
            ]
    return "\n".join(lines)


# ---- kills at lines ------------------------------------------------------------------------------------------------


def filled(folder):
    """A store with items in every table and open lanes; returns its history."""
    history = History(open_replay(folder), 0)
    for number in range(14):
        history.step()
        if number % 4 == 3:
            history.end(number // 4 % 2)
        if number > 2:
            history.create("few", 1 + number % 3, 1.0 + number % 3)
            history.create("distinct", 1 + number % 2, 1.0 + number)
    history.replay.sample("few", 3)
    history.replay.sample("heap", 2)
    return history


def keys(history, name):
    return (
        core_of(history.replay)
        .live_table(name)
        .ring.arrays.keys[core_of(history.replay).live_table(name).ring._live_slots()]
    )


def update(history, name):
    some = keys(history, name)[[0, 2, 2]]
    history.replay.update_priorities(name, np.append(some, np.uint64(10**12)), np.array([7.0, 8.0, 9.0, 1.0]))


def counted_steps(history):
    """Steps of a client's writer, whose items are counted on disk."""
    core = core_of(history.replay)
    writer = ServedRowWriter(core, LANES_OF_WRITER, RULES, 6)
    writer.count_at(core.writer_counts.open(b"a session of one", 7, {}))
    history.writer = writer
    many_steps(history)
    writer.create_item_as(core.keys.take(1), "few", 2, 1.5, 0)
    history.replay.sample("limited", 4)


def many_steps(history):
    for _ in range(7):
        history.step()


OPERATIONS = {
    "append": lambda history: history.step(),
    "append across pages": many_steps,
    "append of a client": counted_steps,
    "create_item": lambda history: history.create("few", 3, 2.5),
    "end_episode": lambda history: history.end(),
    "end_episode of one lane": lambda history: history.end(1),
    "sample uniform": lambda history: history.replay.sample("uniform", 4),
    "sample until gone": lambda history: history.replay.sample("few", 4),
    "sample heap": lambda history: history.replay.sample("heap", 3),
    "sample distinct": lambda history: history.replay.sample("distinct", 4),
    "sample and let pending in": lambda history: history.replay.sample("limited", 3),
    "first update": lambda history: update(history, "uniform"),
    "update heap": lambda history: update(history, "heap"),
    "delete": lambda history: history.replay.delete(
        "heap", np.append(keys(history, "heap")[1:4], np.uint64(5 << 40))
    ),
    "reset": lambda history: history.replay.reset("few"),
    "shrink": lambda history: history.replay.table("distinct").configure(max_size=2),
    "grow": lambda history: (history.replay.table("uniform").configure(max_size=20), many_steps(history)),
    "flush": lambda history: core_of(history.replay).sync(),
    "close": lambda history: history.replay.close(),
}


class Tracer:
    """Counts the lines of the package that are run from a moment on, and kills the process at one of them."""

    def __init__(self, kill_at=None, is_begun=lambda: True):
        self.lines = 0
        self._kill_at = kill_at
        self._is_begun = is_begun

    def __call__(self, frame, event, argument):
        file = frame.f_code.co_filename
        # A process finds what an operation imports only once, so these lines are not the same in all.
        if not file.startswith(PACKAGE) or file == plain.__file__:
            return None
        if event == "line" and self._is_begun():
            if self.lines == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.lines += 1
        return self

    def run(self, work):
        sys.settrace(self)
        try:
            return work()
        finally:
            sys.settrace(None)


def line_kills(name, stride, offset=0):
    if name == "create":
        return creation_kills(stride, offset)
    if name == "reopen":
        return reopening_kills(stride, offset)
    if name == "end of a close":
        return closing_kills(stride, offset)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        operation = OPERATIONS[name]

        def count(write):
            history = filled(folder / "counted")
            tracer = Tracer()
            tracer.run(lambda: operation(history))
            write(str(tracer.lines).encode())

        def record(write):
            history = filled(folder / "recorded")
            first = next_key(history.replay)
            with Moments(history.replay) as moments:
                operation(history)
            moments.states.append(dump(history.replay))
            write(pickle.dumps((moments.states, range(first, next_key(history.replay) + 1))))

        lines = int(finished(count))
        allowed, next_keys = pickle.loads(finished(record))
        seen = set()
        for line in sorted({0, *range(offset, lines, stride)}):
            store = folder / f"killed-{line}"

            def work(write, store=store, line=line):
                history = filled(store)
                Tracer(line).run(lambda: operation(history))

            killed(work)
            seen.add(look(store, allowed, line, next_keys))
            shutil.rmtree(store)
        assert 0 in seen
        return {"lines": lines, "states": len(allowed), "seen": sorted(seen)}


def next_key(replay):
    """The key of the next item: ages are counted from it, so a kill must leave no gap."""
    return core_of(replay).keys.next


def look(store, allowed, line, next_keys=None):
    """Which of the states it is; the number of the first that is equal."""
    replay = open_replay(store, 64)
    found = dump(replay)
    assert next_keys is None or next_key(replay) in next_keys, f"line {line}: {next_key(replay)}, {next_keys}"
    assert next_key(replay) > max((key for each in found.values() for key in each["keys"]), default=0)
    check_rows(found)
    assert found in allowed, f"line {line}: {explain(found, allowed)}"
    check_references(replay)
    replay.close()
    return allowed.index(found)


def finished(work):
    child, reading = in_child(work)
    content = drain(reading)
    assert os.waitpid(child, 0)[1] == 0
    return content


def killed(work, ends_before=False):
    child, reading = in_child(work)
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    assert status == signal.SIGKILL or (ends_before and status == 0), status


def creation_kills(stride, offset):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)

        # What is imported at the first use is not part of the work.
        filled(folder / "first").replay.close()

        def count(write):
            tracer = Tracer()
            tracer.run(lambda: open_replay(folder / "counted"))
            write(str(tracer.lines).encode())

        lines = int(finished(count))
        for line in range(offset, lines, stride):
            store = folder / f"killed-{line}"
            # What the collector of garbage runs is not the same every time, so the last lines may not be there.
            ends_before = line > 0.9 * lines
            killed(
                lambda write, store=store, line=line: Tracer(line).run(lambda: open_replay(store)),
                ends_before,
            )
            history = filled(store)
            assert len(history.replay.table("uniform")) == 6
            shutil.rmtree(store)
        return {"lines": lines}


def reopening_kills(stride, offset):
    """Killed in a change, then killed while that is undone, at every line of it."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)

        def change(history):
            history.replay.sample("few", 4)

        def record(write):
            history = filled(folder / "recorded")
            before = dump(history.replay)
            tracer = Tracer()
            tracer.run(lambda: change(history))
            write(pickle.dumps((before, dump(history.replay), tracer.lines)))

        before, after, lines = pickle.loads(finished(record))
        killed(
            lambda write: (
                history := filled(folder / "half"),
                Tracer(lines // 2).run(lambda: change(history)),
            )
        )

        def count(write):
            shutil.copytree(folder / "half", folder / "counted")
            tracer = Tracer()
            tracer.run(lambda: open_replay(folder / "counted"))
            write(str(tracer.lines).encode())

        lines = int(finished(count))
        seen = set()
        for line in range(offset, lines, stride):
            store = folder / f"killed-{line}"
            shutil.copytree(folder / "half", store)
            ends_before = line > 0.9 * lines
            killed(
                lambda write, store=store, line=line: Tracer(line).run(lambda: open_replay(store)),
                ends_before,
            )
            seen.add(look(store, [before, after], line))
            shutil.rmtree(store)
        assert len(seen) == 1
        return {"lines": lines, "seen": sorted(seen)}


def closing_kills(stride, offset):
    """Killed in an orderly close after its record is there: before the file of the rows is cut, and after that."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)

        def close(store, line=None):
            history = filled(store)
            tracer = Tracer(line, (store / "closed.json").exists)
            tracer.run(history.replay.close)
            return tracer.lines, dump(history.replay)

        lines, state = pickle.loads(finished(lambda write: write(pickle.dumps(close(folder / "counted")))))
        sizes = set()
        for line in range(offset, lines, stride):
            store = folder / f"killed-{line}"
            killed(lambda write, store=store, line=line: close(store, line), line > 0.9 * lines)
            sizes.add((store / "rows").stat().st_size)
            for _ in range(2):
                look(store, [state], line)
            shutil.rmtree(store)
        return {"lines": lines, "sizes": len(sizes)}


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    result = (
        line_kills(numbers[0], *map(int, numbers[1:]))
        if what == "lines"
        else random_kills(*map(int, numbers))
    )
    sys.stdout.write(json.dumps(result))
