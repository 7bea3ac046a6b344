"""Ctrl-C at every moment of a step writer's calls: items stay true, and the writer can be used again.

An interrupted call is answered in one of two ways. "repeat": the same call again, unless the error says that its step
was stored; where the writer refuses, all environments begin anew. "reset": all environments begin anew at once.
"""

import itertools

import numpy as np
import pytest
from interrupts import Interrupt

import headrace as hr
from headrace.replay.public import core_of
from headrace.store.layout import FINAL
from headrace.tables.items.layout import LOOKAHEAD, REAL

STEP = {
    "observation": {"a": np.int64(0), "b": np.zeros(2)},
    "action": np.int64(0),
    "reward": np.float64(0),
    "terminated": False,
    "truncated": False,
}
FIFO = hr.selectors.Fifo()


def length(lane, episode):
    """Number of transitions of an episode."""
    return 2 + (lane + episode) % 3


class World:
    """Environments whose observations tell lane, episode and time."""

    def __init__(self, lanes, mode):
        self.lanes, self.mode, count = lanes, mode, lanes or 1
        self.lane, self.episode, self.time = np.arange(count), np.zeros(count, int), np.zeros(count, int)
        self.closed, self.resetting = np.ones(count, bool), np.zeros(count, bool)
        self.taken = []

    def observation(self, episode, time):
        a = self.lane * 1_000_000 + episode * 1000 + time
        return self.shaped({"a": a, "b": np.stack([a, -a], axis=-1).astype(float)})

    def shaped(self, tree):
        if self.lanes is not None:
            return tree
        return {n: v[0] for n, v in tree.items()} if isinstance(tree, dict) else tree[0]

    def begin_anew(self):
        self.episode += 1
        self.time[:] = 0
        self.closed[:], self.resetting[:] = True, False

    def call(self, writer):
        """Makes the next call, and goes on."""
        call, effect = self.next_call()
        call(writer)
        effect()

    def next_call(self):
        """Returns the next call, of a writer, and its effect here."""
        if self.closed.any():
            mask = None if self.closed.all() else self.closed.copy()
            first = self.observation(self.episode, self.time)

            def effect():
                self.closed[:] = False

            return lambda writer: writer.add_first(first, mask=mask), effect
        lengths = np.array([length(*each) for each in zip(self.lane, self.episode, strict=True)])
        ends = (self.time + 1 == lengths) & ~self.resetting
        action = self.observation(self.episode, self.time)["a"]
        true = self.observation(self.episode, np.where(self.resetting, 0, self.time + 1))
        final = None
        if self.mode == "same_step":
            first = self.observation(self.episode + 1, 0 * self.time)
            final = true
            true = {
                name: np.where(ends.reshape(-1, *[1] * (value.ndim - 1)), first[name], value)
                for name, value in true.items()
            }
        none = np.zeros_like(ends)
        arguments = (action, np.asarray(action, float), self.shaped(ends), self.shaped(none), true)

        def effect():
            steps = zip(self.lane, self.episode, self.time, strict=True)
            self.taken += [step for step, idle in zip(steps, self.resetting, strict=True) if not idle]
            self.time[:] = np.where(self.resetting, 0, self.time + 1)
            self.resetting[:] = False
            self.episode[ends] += 1
            if self.mode == "next_step":
                self.resetting[:] = ends
            self.time[ends] = 0
            if self.mode in (None, "disabled"):
                self.closed[:] = ends

        def call(writer):
            writer.add(*arguments, final_observation=final)

        return call, effect


def rules_of(kind):
    return {
        "transition": [hr.NStepRule("t")],
        "n_step": [hr.NStepRule("t", 3)],
        "episode": [hr.EpisodeRule("e", 10)],
        "stream": [hr.ItemRule("s", 3, 2, hr.EndOfEpisode.CONTINUE)],
        "all": [
            hr.NStepRule("t", 2),
            hr.ItemRule("s", 3, 2, hr.EndOfEpisode.PAD),
            hr.EpisodeRule("e", 10),
        ],
        "asked": [
            hr.NStepRule("t", 2, priority=lambda rows: float(rows["observation"]["a"][0])),
            hr.EpisodeRule("e", 10),
        ],
    }[kind]


def new_replay(kind):
    tables = [hr.Table(rule.table, sampler=FIFO, remover=FIFO, max_size=10_000) for rule in rules_of(kind)]
    return hr.Replay(hr.Signature.like(STEP), tables, seed=0)


def new_writer(replay, kind, lanes, mode):
    return hr.StepWriter(replay, rules_of(kind), lanes=lanes, autoreset=mode)


def check_items(replay):
    """Every row of every item is what an environment gave, and rows follow one another as there.

    Returns the steps at which items of each table begin.
    """
    core = core_of(replay)
    store, begins = core.store, {}
    columns = store.columns
    for name in core.table_names:
        live = core.live_table(name)
        arrays, slots = live.ring.arrays, live.ring._live_slots()
        shapes = (
            arrays.windows[slots] if live.ring.has_windows else np.tile(live.ring.window, (len(slots), 1))
        )
        begins[name] = []
        for slot, (real, look) in zip(slots, shapes[:, [REAL, LOOKAHEAD]].tolist(), strict=True):
            first = int(arrays.rows[slot])
            is_stream = look > 1000
            rows = [first] if is_stream else [store.window.follow(first, n) for n in range(real + look)]
            assert is_stream or -1 not in rows[:real]
            rows = [row for row in rows if row >= 0]
            begins[name].append(check_rows(store, columns, rows))
    return begins


def check_rows(store, columns, rows):
    told = []
    for row in rows:
        a = int(columns["observation/a"][row])
        lane, episode, time = a // 1_000_000, a // 1000 % 1000, a % 1000
        assert columns["observation/b"][row].tolist() == [a, -a]
        is_final = bool(store.arrays.steps[row] & FINAL)
        acts = 0 if is_final else a
        ends = not is_final and time + 1 == length(lane, episode)
        assert columns["action"][row] == columns["reward"][row] == acts, (a, is_final)
        assert (columns["terminated"][row], columns["truncated"][row]) == (ends, False)
        told.append((lane, episode, time, is_final))
    for before, after in itertools.pairwise(told):
        assert not before[3]
        assert after[:3] == (*before[:2], before[2] + 1), told
    return told[0][:3]


def interrupted(number, act):
    """Interrupts a call; returns whether there was such a moment, and whether the error says that a step was stored."""
    try:
        with Interrupt(number):
            act()
    except KeyboardInterrupt as error:
        return True, any("do not send it again" in note for note in getattr(error, "__notes__", []))
    return False, False


def repeat(world, writer, act, effect, is_stored):
    """Makes the interrupted call again or, if its step is stored, the next one."""
    try:
        if is_stored:
            effect()
            world.call(writer)
        else:
            act(writer)
            effect()
    except ValueError as error:
        if "an earlier call was interrupted" in str(error):
            world.begin_anew()
        else:
            assert "add_first: the episode" in str(error), error
            effect()  # The episode is open.


def tried(kind, lanes, mode, before, name, number, answer):
    """Interrupts one call at one moment, goes on, and checks; returns whether there was such a moment."""
    with new_replay(kind) as replay:
        writer, world = new_writer(replay, kind, lanes, mode), World(lanes, mode)
        for _ in range(before):
            world.call(writer)
        act, effect = world.next_call() if name == "add" else (CALLS[name], lambda: None)
        was_there, is_stored = interrupted(number, lambda: act(writer))
        if was_there and answer == "repeat":
            repeat(world, writer, act, effect, is_stored)
        elif was_there and name != "close":
            writer.reset()
            world.begin_anew()
        if name == "close":
            writer.close()
            writer = new_writer(replay, kind, lanes, mode)
        if name not in ("add", "flush") or not was_there:
            world.begin_anew()
            writer.reset()
        known = len(world.taken)
        for _ in range(10):
            world.call(writer)
        writer.close()
        begins = check_items(replay)
        for table in begins:
            assert table == "s" or len(set(begins[table])) == len(begins[table]), "a step is there twice"
        if "t" in begins:
            assert set(world.taken[known:]) <= set(begins["t"]), "a later step is missing"
    return was_there


CALLS = {
    "reset": lambda writer: writer.reset(),
    "drop": lambda writer: writer.reset(False),
    "flush": lambda writer: writer.flush(),
    "close": lambda writer: writer.close(),
}


@pytest.mark.filterwarnings("ignore:.* steps are in no item")
@pytest.mark.parametrize(
    ("kind", "mode", "before", "name", "answer"),
    [
        ("transition", None, 1, "add", "repeat"),
        ("transition", None, 1, "add", "reset"),
        ("all", None, 2, "add", "repeat"),  # The episode ends.
        ("asked", None, 1, "add", "repeat"),
        ("stream", None, 3, "add", "reset"),
        ("all", None, 0, "add", "repeat"),  # add_first
        ("transition", "next_step", 2, "add", "repeat"),
        ("all", "same_step", 2, "add", "repeat"),
        ("all", "disabled", 3, "add", "repeat"),  # add_first
        ("n_step", "next_step", 3, "add", "reset"),  # Lanes end, and others are reset.
        ("all", None, 2, "reset", "repeat"),
        ("all", None, 2, "drop", "repeat"),
        ("episode", None, 2, "flush", "repeat"),
        ("n_step", "next_step", 2, "close", "repeat"),
    ],
)
def test_items_stay_true(kind, mode, before, name, answer):
    """A2, A7, P1: and no step is there twice, and none is missing after it."""
    number, lanes = 1, None if mode is None else 4
    while tried(kind, lanes, mode, before, name, number, answer):
        number += 1
    assert number > (1 if name == "flush" else 10), "there are moments to try"
