"""The priority of new items: a number, or the largest so far (Schaul et al. 2016)."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.tables.description.table_json import table_from_json, table_to_json

SIGNATURE = hr.Signature.like({"n": 0})
KINDS = ("uniform", "prioritized", "max_heap")
MOST = 5


def new_table(kind, new_priority="largest", name=None):
    sampler = {
        "uniform": hr.selectors.Uniform(),
        "prioritized": hr.selectors.Prioritized(0.5),
        "max_heap": hr.selectors.MaxHeap(),
    }[kind]
    return hr.Table(
        name or kind, sampler=sampler, remover=hr.selectors.Fifo(), max_size=MOST, new_priority=new_priority
    )


class Model:
    """The priorities by key of one table, in plain Python."""

    def __init__(self):
        self.items, self.largest = {}, 1.0

    def insert(self, key, priority):
        self.items[key] = self.largest if priority is None else priority
        self.largest = max(self.largest, self.items[key])
        while len(self.items) > MOST:
            del self.items[min(self.items)]

    def update(self, changes):
        for key, priority in changes:
            if key in self.items:
                self.items[key] = priority
                self.largest = max(self.largest, priority)

    def reset(self):
        self.items, self.largest = {}, 1.0


def priorities_of(replay, table):
    keys = replay.items(table)
    return {int(item.info.keys[0]): float(item.info.priorities[0]) for item in keys}


PRIORITIES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 8.0])
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.none()),
        st.tuples(st.just("item"), st.none() | PRIORITIES),
        st.tuples(st.just("end"), st.none()),
        st.tuples(st.just("update"), st.lists(st.tuples(st.integers(0, 7), PRIORITIES), max_size=4)),
        st.tuples(st.just("reset"), st.none()),
        st.tuples(st.just("again"), st.none()),
    ),
    max_size=20,
)


@settings(max_examples=fewer(15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(calls=CALLS, place=st.sampled_from(["memory", "disk"]), lanes=st.integers(1, 2))
def test_a_table_follows_the_model(calls, place, lanes, tmp_path_factory):
    """In memory and on disk, by rules and by `create_item`, through checkpoints and reopened stores."""
    folder = tmp_path_factory.mktemp("store")
    path = folder / "store" if place == "disk" else None
    tables = [new_table(kind) for kind in KINDS]
    rules = [hr.ItemRule(kind, 1) for kind in KINDS]
    replay = hr.Replay(SIGNATURE, tables, path=path, capacity=1000, seed=0)
    models = {kind: Model() for kind in KINDS}
    writer = replay.writer(lanes=lanes, items=rules)
    step = {"n": 0 if lanes == 1 else np.zeros(lanes, int)}
    key, is_open = 1, False
    for number, (name, what) in enumerate(calls):
        if name == "step":
            writer.append(step)
            is_open = True
            for kind in KINDS:
                for _ in range(lanes):
                    models[kind].insert(key, None)
                    key += 1
        elif name == "item" and is_open:
            for kind in KINDS:
                writer.create_item(kind, 1, what)
                models[kind].insert(key, what)
                key += 1
        elif name == "end" and is_open:
            writer.end_episode()
            is_open = False
        elif name == "update":
            for kind in KINDS:
                ours, theirs = [*models[kind].items], sorted(priorities_of(replay, kind))
                # Key 0 is of no item.
                names = {at: (ours[at], theirs[at]) if at < len(ours) else (0, 0) for at, _ in what}
                replay.update_priorities(kind, [names[at][1] for at, _ in what], [each for _, each in what])
                models[kind].update([(names[at][0], each) for at, each in what])
        elif name == "reset":
            for kind in KINDS:
                replay.reset(kind)
                models[kind].reset()
        elif name == "again":
            writer.close()
            saved = replay.save(folder / str(number)) if path is None else None
            replay.close()
            replay = hr.Replay.load(saved) if path is None else hr.Replay(SIGNATURE, tables, path=path)
            writer, is_open = replay.writer(lanes=lanes, items=rules), False
        for kind in KINDS:
            found = priorities_of(replay, kind)
            assert [found[each] for each in sorted(found)] == [*models[kind].items.values()]
    writer.close()
    replay.close()


def test_compiled_and_plain_kernels_do_the_same(capsys):
    """One program in both, the plain ones in a process of their own."""
    program = """
import headrace as hr
table = hr.Table.prioritized(100, 0.5, new_priority="largest")
replay = hr.Replay(hr.Signature.like({"n": 0}), [table], seed=0)
with replay.writer(items=[hr.ItemRule("replay", 1)]) as writer:
    writer.append({"n": 0})
    replay.update_priorities("replay", [1], [4.0])
    writer.append({"n": 1})
    writer.create_item("replay", 1, 6.0)
    writer.end_episode()
    writer.append({"n": 2})
print([float(item.info.priorities[0]) for item in replay.items("replay")])
replay.close()
"""
    command, environment = [sys.executable, "-c", program], {**os.environ, "HEADRACE_PLAIN": "1"}
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=50)
    exec(program, {})
    assert plain.stdout == capsys.readouterr().out == "[4.0, 4.0, 6.0, 6.0]\n"


def test_items_that_waited_get_the_largest_priority_when_they_go_in():
    table = hr.Table(
        "t",
        sampler=hr.selectors.Fifo(),
        remover=hr.selectors.Fifo(),
        max_size=10,
        rate_limiter=hr.rate_limiters.Queue(1),
        new_priority="largest",
    )
    with hr.Replay(SIGNATURE, [table]) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append({"n": 0})
        writer.append({"n": 1})
        replay.update_priorities("t", [1], [5.0])
        replay.sample("t", 1)
        assert priorities_of(replay, "t") == {1: 5.0, 2: 5.0}


def test_a_number_is_the_priority_of_new_items():
    table = new_table("prioritized", 3, "t")
    with hr.Replay(SIGNATURE, [table]) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append({"n": 0})
        replay.update_priorities("t", [1], [5.0])
        writer.append({"n": 0})
        writer.create_item("t", 1)
        assert priorities_of(replay, "t") == {1: 5.0, 2: 3.0, 3: 3.0}


def test_step_writers_leave_the_priority_to_the_table():
    table = hr.Table.prioritized(10, 0.6, new_priority="largest")
    step = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [table]) as replay:
        with hr.TransitionWriter(replay) as writer:
            writer.add_first(0.0)
            writer.add(0, 0.0, False, False, 0.0)
            writer.add(0, 0.0, False, False, 0.0)
            replay.update_priorities("replay", [1], [7.0])
            writer.add(0, 0.0, True, False, 0.0)
        assert list(priorities_of(replay, "replay").values())[-1] == 7.0


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "max", "", None, True])
def test_a_bad_priority_of_new_items_is_refused(bad):
    with pytest.raises(
        ValueError, match="table 't': new_priority: expected a finite number >= 0 or 'largest', got"
    ):
        new_table("uniform", bad, "t")


@pytest.mark.parametrize("new_priority", [0, 1.0, 2.5, "largest"])
def test_the_setting_is_written_to_files(new_priority):
    table = new_table("uniform", new_priority)
    assert table_from_json(table_to_json(table)) == table
    assert table.new_priority == new_priority
