"""Rollouts of any fragment length against lists of every episode (views-rollouts R2, R5, R8 to R11, V7, V13)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from counting_rollouts import Recurrent, counters, worker
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr


class Step(NamedTuple):
    """One step of an episode, as plain numbers."""

    env: int
    episode: int
    t: int
    length: int
    fragment_stop: int

    @property
    def action(self) -> int:
        return self.t % 4


def steps_of_fragment(lengths: Sequence[int], env: int, begin: int, stop: int) -> list[Step]:
    """Lists the steps `begin <= step < stop` of an environment whose episodes have these lengths in turn."""
    steps, episode, at = [], 0, 0
    while at < stop:
        length = lengths[episode % len(lengths)]
        cut = min(length, stop - at)
        steps += [Step(env, episode, t, length, cut) for t in range(length) if begin <= at + t < stop]
        at, episode = at + length, episode + 1
    return steps


def value(source: str, step: Step, t: int) -> Any:
    """Returns a column at index t of the episode of a step."""
    action = t % 4
    return {
        "observation": [step.env, step.episode, t],
        "action": action,
        "reward": 4.0 * t + action,
        "doubled": 2 * t,
        "state_out_0": t + 1,
    }[source]


def shown(source: str, offset: int, edge: bool, causal: bool, step: Step) -> tuple[Any, bool]:
    """Presents one place of a view, after V6 and V7: the value, and whether it is data."""
    count = step.fragment_stop + (source == "observation")
    index = step.t + offset
    if 0 <= index < count:
        return value(source, step, index), True
    zero = [0, 0, 0] if source == "observation" else 0
    if not edge or (index < 0 and source != "observation" and causal and step.t == 0):
        return zero, False
    return value(source, step, 0 if index < 0 else count - 1), False


offsets = st.lists(st.integers(-4, 3), min_size=1, max_size=3)
sources = st.sampled_from(["observation", "action", "reward", "doubled"])


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    num_envs=st.integers(1, 3),
    fragment=st.integers(1, 9),
    calls=st.integers(1, 4),
    views=st.dictionaries(
        st.sampled_from(["one", "two", "three"]), st.tuples(sources, offsets, st.booleans()), max_size=3
    ),
    postprocess=st.booleans(),
)
def test_any_fragment_length_gives_the_numbers_of_the_episodes(
    lengths: list[int],
    num_envs: int,
    fragment: int,
    calls: int,
    views: dict[str, tuple[str, list[int], bool]],
    postprocess: bool,
):
    given_views = {
        name: hr.View(
            source, hr.ArraySpec((), "int64") if source == "doubled" else None, shift,
            fill="edge" if edge else "zeros", mask=True,
        )
        for name, (source, shift, edge) in views.items()
    }  # fmt: skip
    policy = Recurrent(given_views)
    if postprocess:
        policy.postprocess_trajectory = lambda batch, others, episode: None  # type: ignore[attr-defined]
    with worker(counters(*lengths), policy, num_envs=num_envs, rollout_fragment_length=fragment) as made:
        batches = [made.sample() for _ in range(calls)]
    for call, batch in enumerate(batches):
        steps = [
            step
            for env in range(num_envs)
            for step in steps_of_fragment(lengths, env, call * fragment, (call + 1) * fragment)
        ]
        check_rows(batch, steps)
        for name, (source, shift, edge) in views.items():
            causal = max(shift) < 0
            cells = [[shown(source, offset, edge, causal, step) for offset in shift] for step in steps]
            assert batch[name].tolist() == [[cell for cell, _ in row] for row in cells], (name, views)
            assert batch[f"{name}_mask"].tolist() == [[known for _, known in row] for row in cells]


def check_rows(batch: hr.SampleBatch, steps: list[Step]) -> None:
    assert batch["observation"].tolist() == [[step.env, step.episode, step.t] for step in steps]
    assert batch["next_observation"].tolist() == [[step.env, step.episode, step.t + 1] for step in steps]
    assert batch["action"].tolist() == [step.action for step in steps]
    assert batch["reward"].tolist() == [4.0 * step.t + step.action for step in steps]
    assert batch["terminated"].tolist() == [step.t == step.length - 1 for step in steps]
    assert batch["t"].tolist() == batch["state_in_0"].tolist() == [step.t for step in steps]
    assert batch["doubled"].tolist() == [2 * step.t for step in steps]
    assert batch["env_id"].tolist() == [step.env for step in steps]
    ids = [(step.env, step.episode) for step in steps]
    assert len(set(zip(batch["episode_id"].tolist(), ids, strict=True))) == len(set(ids))
    assert len(set(batch["episode_id"].tolist())) == len(set(ids))


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    fragments=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    longest=st.none() | st.integers(1, 4),
)
def test_fragments_of_any_length_put_together_are_the_same(
    lengths: list[int], fragments: tuple[int, int], longest: int | None
):
    total = fragments[0] * fragments[1]
    views = {"stack": hr.View("observation", shift="-3:0", fill="edge"), "prev": hr.View("reward", shift=-1)}
    collected = []
    for fragment in fragments:
        with worker(
            counters(*lengths), Recurrent(), num_envs=2, rollout_fragment_length=fragment, views=views,
            max_seq_len=longest,
        ) as made:  # fmt: skip
            whole = hr.SampleBatch.concat([made.sample() for _ in range(total // fragment)])
        names = [name for name in whole if not name.startswith("state_in") and name != "fragment_id"]
        if longest is None:
            names += ["state_in_0", "state_in_1"]
        order = np.lexsort([whole["t"], whole["episode_id"]])
        collected.append({name: whole[name][order].tolist() for name in names})
    assert collected[0] == collected[1]
