"""A plain model of the rows that a collector hands out of scripted agents, one step of one environment at a time."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from scripted_agents import AGENTS, ScriptedEnv, Turn

import headrace as hr

FLAGS = ("terminated", "truncated")
ROW = ("agent", "episode", "time", "t", *FLAGS, "version")


class Event(NamedTuple):
    """A step of an environment: the agents that enter in it, and those that each flag ends, a letter each."""

    comes: str = ""
    terminated: str = ""
    truncated: str = ""


class Script(NamedTuple):
    """An episode of one environment.

    Attributes:
        agents: all of them.
        first: those that are observed after a reset.
        events: the steps.
    """

    agents: str
    first: str
    events: tuple[Event, ...]


# Episodes of three and of five steps. In the first one `c` comes late, and is truncated with it.
THREE = Script("abc", "ab", (Event(comes="c", terminated="a"), Event(), Event(truncated="b")))
FIVE = Script("abc", "abc", (Event(), Event(terminated="ac"), Event(), Event(), Event(terminated="b")))


class SavedScript(ScriptedEnv):
    """A scripted environment with a state."""

    def state_dict(self):
        return {"agents": list(self.agents), "episode": self.episode, "time": self.time}

    def load_state_dict(self, state):
        self.agents, self.episode, self.time = list(state["agents"]), state["episode"], state["time"]


def environment(script):
    """Returns the environment of a script."""
    plays, done, turns = set(script.first), set(), []
    for event in script.events:
        acts = set(plays)
        plays |= set(event.comes) - done
        ends = acts & {*event.terminated, *event.truncated}
        flags = ["".join(sorted(acts & set(names))) for names in event[1:]]
        turns.append(Turn("".join(sorted(plays)), dict.fromkeys(acts, 1.0), *flags))
        plays -= ends
        done |= ends
    return SavedScript(script.first, *turns, possible=script.agents)


def environments(scripts):
    """Returns a callable for each environment."""
    return [partial(environment, script) for script in scripts]


def letters(agents):
    return st.lists(st.sampled_from(agents), unique=True, max_size=len(agents)).map("".join)


@st.composite
def scripts(draw, agents):
    """Draws an episode in which agents come and end at any step."""
    events = st.builds(Event, letters(agents), letters(agents), letters(agents))
    return Script(agents, draw(letters(agents)), tuple(draw(st.lists(events, min_size=1, max_size=6))))


options_of_resets = st.fixed_dictionaries(
    {
        "reset_at_each_iter": st.booleans(),
        "reset_when_done": st.booleans(),
        "max_frames_per_traj": st.none() | st.integers(1, 7),
        "init_random_frames": st.none() | st.integers(1, 30),
    }
)
sets_of_scripts = st.sampled_from(["ab", "abc"]).flatmap(
    lambda agents: st.lists(scripts(agents), min_size=1, max_size=2)
)


@dataclass
class Copy:
    """One environment."""

    script: Script
    episode: int = 0
    time: int = 0
    plays: dict = field(default_factory=dict)  # The step of the episode in which each agent came.
    done: set = field(default_factory=set)
    waits: bool = False

    def __post_init__(self):
        self.episode = -1
        self.reset()

    def reset(self):
        self.episode, self.time, self.waits = self.episode + 1, 0, False
        self.plays, self.done = dict.fromkeys(self.script.first, 0), set()

    def step(self, limit, version):
        """Returns the rows by agent, and whether the episode is over."""
        event = self.script.events[self.time]
        rows = {
            agent: {
                "agent": AGENTS.index(agent),
                "episode": self.episode,
                "time": self.time,
                "t": self.time - came,
                "terminated": agent in event.terminated,
                "truncated": agent in event.truncated,
                "version": version,
            }
            for agent, came in self.plays.items()
        }
        self.time += 1
        ends = {agent for agent, row in rows.items() if row["terminated"] or row["truncated"]}
        for agent in event.comes:
            if agent not in self.done:
                self.plays.setdefault(agent, self.time)
        for agent in ends:
            del self.plays[agent]
        self.done |= ends
        is_last = self.time == len(self.script.events)
        for row in rows.values():
            row["truncated"] |= self.time == limit or (is_last and not row["terminated"])
        return rows, is_last or self.time == limit or not self.plays


@dataclass
class Model:
    """Model of the rows of environments with agents (collectors CR4 to CR8, CE7, CB6; views-rollouts M3, M5)."""

    scripts: list
    steps: int
    max_frames_per_traj: int | None = None
    init_random_frames: int | None = None
    reset_at_each_iter: bool = False
    reset_when_done: bool = True
    set_truncated: bool = False
    begun: int = 0

    def __post_init__(self):
        self.copies = [Copy(script) for script in self.scripts]
        self.lanes = [(copy, agent) for copy in self.copies for agent in copy.script.agents]

    def reset(self, chosen=None):
        for copy, is_chosen in zip(self.copies, chosen or [True] * len(self.copies), strict=True):
            if is_chosen:
                copy.reset()

    @property
    def stands_still(self):
        return all(copy.waits for copy in self.copies) and not self.reset_at_each_iter

    def lanes_of(self, chosen):
        """Returns a bool for each lane, of one for each environment."""
        return None if chosen is None else [each for each in chosen for _ in self.copies[0].script.agents]

    def rollout(self, resets=()):
        """Returns a list of T rows for each lane; None is a masked row.

        Args:
            resets: maps steps to the environments that are reset before them, a bool for each; None: all.
        """
        if self.reset_at_each_iter and self.begun:
            self.reset()
        version = -1 if self.begun < (self.init_random_frames or 0) else 0
        self.begun += self.steps * len(self.lanes)
        rows = []
        for step in range(self.steps):
            if step in resets:
                self.reset(resets[step])
            rows.append([row for copy in self.copies for row in self._step(copy, version)])
        lanes = [list(lane) for lane in zip(*rows, strict=True)]
        if self.set_truncated:
            self._mark(lanes)
        return lanes

    def _mark(self, lanes):
        for lane in lanes:
            if self.reset_when_done:
                marked = [row for row in lane if row is not None][-1:]
            else:  # Nothing but a reset that was not asked for yet brings an agent that has ended another row.
                marked = [row for row in lane if row is not None and row["terminated"]]
                marked += [row for row in lane[-1:] if row is not None]
            for row in marked:
                row["truncated"] = True

    def _step(self, copy: Copy, version) -> list[Any]:
        if copy.waits:
            return [None] * len(copy.script.agents)
        rows, is_over = copy.step(self.max_frames_per_traj, version)
        if is_over:
            copy.waits = not self.reset_when_done
            if self.reset_when_done:
                copy.reset()
        return [rows.get(agent) for agent in copy.script.agents]


def known_columns(lanes):
    """Returns the mask `[N, T]` and, where it is true, the columns of the rows."""
    mask = np.array([[row is not None for row in lane] for lane in lanes])
    rows = [row for lane in lanes for row in lane if row is not None]
    return mask, {name: np.array([row[name] for row in rows], int) for name in ROW}


def check_rows(batch, lanes):
    """Checks every column of a batch of `by_time` against the rows of the model."""
    mask, known = known_columns(lanes)
    np.testing.assert_array_equal(batch["mask"], mask)
    assert batch.frames == mask.sum()
    for name, column in batch.items():  # CB6
        assert (column[~mask] == (-1 if name == "episode_id" else 0)).all(), name
    seen = np.stack([known["agent"], known["episode"], known["time"]], axis=1).reshape(-1, 3)
    np.testing.assert_array_equal(batch["observation"][mask], seen)
    np.testing.assert_array_equal(batch["next_observation"][mask], np.add(seen, [0, 0, 1]))
    acted = known["version"] >= 0
    np.testing.assert_array_equal(batch["action"][mask][acted], (10 * seen[:, 0] + seen[:, 2])[acted])
    np.testing.assert_array_equal(batch["reward"][mask], 1)
    for name in ("t", *FLAGS):
        np.testing.assert_array_equal(batch[name][mask], known[name], name)
    np.testing.assert_array_equal(batch["policy_version"][mask], known["version"])


def check_ids(batches, rollouts):
    """Checks that each trajectory of each lane has an id of its own in all batches, which rise within a lane (CB5)."""
    ids: dict[Any, set[int]] = {}
    for lane, rows in enumerate(zip(*rollouts, strict=True)):
        seen = np.concatenate([batch["episode_id"][lane] for batch in batches])
        rows = [row for each in rows for row in each]
        for number, row in zip(seen.tolist(), rows, strict=True):
            if row is not None:
                ids.setdefault((lane, row["episode"]), set()).add(number)
        assert (np.diff(seen[seen >= 0]) >= 0).all()
    assert all(len(each) == 1 for each in ids.values())
    assert len({number for each in ids.values() for number in each}) == len(ids)


def replay_of_items(script):
    """Returns a replay of which each transition is sampled once, in order."""
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000, max_times_sampled=1)
    return hr.Replay(hr.collectors.signature(partial(environment, script)), [table], capacity=3000)


def check_items(replay, rollouts):
    """Checks that every transition of the rows of the model is an item once, with what followed, and no other is."""
    rows = [row for lanes in rollouts for lane in lanes for row in lane if row is not None]
    assert len(replay.table("t")) == len(rows)
    if not rows:
        return
    views = hr.views.transition() | {name: hr.View(name) for name in FLAGS}
    data = replay.sample("t", len(rows), views=views, timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    columns = (data["observation"], *(data[name][:, None] for name in FLAGS))
    stored = [tuple(row) for row in np.concatenate(columns, axis=1).tolist()]
    assert sorted(stored) == sorted(
        tuple(row[name] for name in ("agent", "episode", "time", *FLAGS)) for row in rows
    )


def draw_resets(data, model):
    """Draws steps of a rollout, and the environments that are reset before them."""
    count = len(model.copies)
    chosen = st.none() | st.lists(st.booleans(), min_size=count, max_size=count)
    return data.draw(st.dictionaries(st.integers(1, 8), chosen, max_size=2))


def step_by_step(collector, steps, between):
    """Collects a rollout with calls that take one step each.

    Returns the batch, and the collector that goes on: `between(collector, step)` returns it before each step.
    """
    for step in range(steps):
        collector = between(collector, step)
        with suppress(hr.DeadlineExceeded):
            batch = collector.next(timeout=0)
    return collector, batch
