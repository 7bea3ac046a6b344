"""States whose insides are damaged, before they are loaded."""

import contextlib
import copy
import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from tests.support.random_walk import RandomWalk, Recurrent

cloudpickle.register_pickle_by_value(sys.modules[__name__])


MISSING = object()


def parts_of(value):
    """Names and values of the parts of a dict or list; of a long list the first ones."""
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value))[:2] if isinstance(value, list | tuple) else []


def paths(state, path=()):
    for key, value in parts_of(state):
        yield (*path, key)
        yield from paths(value, (*path, key))


def part_at(state, path):
    for key in path:
        state = state[key]
    return state


def damages(value):
    """Values that a part could have become."""
    yield from (MISSING, None, "abc", object(), [], {"a": [1]}, 1 << 80)
    if isinstance(value, np.ndarray):
        yield from (value.astype(str), value[None], value[:-1] if value.ndim else 0.5)
        if value.dtype.kind in "iu":
            yield from (value - 1000, value + 1000)
    elif isinstance(value, list | tuple):
        yield from (value[:-1], [*value, *(value[:1] or [0])])
    elif isinstance(value, int):
        yield from (value - 1000, value + 1000, 0.5)


def damaged(state, path, value):
    """A copy of a state with another value at a path."""
    if not path:
        return value
    own = list(state) if isinstance(state, tuple) else copy.copy(state)
    if len(path) == 1 and value is MISSING:
        del own[path[0]]
    else:
        own[path[0]] = damaged(own[path[0]], path[1:], value)
    return own


def all_damages(state, chosen):
    """Damaged copies of a state, each with the path of the damage."""
    for path in paths(state):
        where = "/".join(map(str, path))
        if chosen in where:
            for value in damages(part_at(state, path)):
                yield where, damaged(state, path, value)


def refusal(collector, state):
    """The text of the error of a load; None: it is loaded."""
    try:
        collector.load_state_dict(state)
    except ValueError as error:
        return str(error)
    return None


def is_clear(text, where):
    """The error names the part, or the one around it, and says that the collector is as before."""
    inner = where.rpartition("/")[0]
    names = where in text or (inner and inner in text) or f"got a dict without {where};" in text
    if "/generators/" in where:  # The state of a generator is one part.
        names = where.partition("/generators/")[0] + "/generators" in text
    if "/weights" in f"/{where}":  # Errors of weights have paths of their own.
        names = "weights" in text
    return text.startswith("load_state_dict: ") and text.endswith("; nothing was changed") and bool(names)


def check_all(make, state, chosen, take, *, are_alike=True):
    """A damaged state is refused, and then changes nothing, or the collector goes on from it."""
    refused, unclear = [], []
    with make() as scratch:
        for where, other in all_damages(state, chosen):
            text = refusal(scratch, other)
            if text is None:
                take(scratch, 1)
            else:
                refused.append(other)
                if not is_clear(text, where):
                    unclear.append((where, text))
    assert unclear == []
    with make() as collector, make() as control:
        for each in (collector, control):
            each.load_state_dict(state)
        for other in refused:
            assert refusal(collector, other)
        for _ in range(2 if are_alike else 0):
            ours, theirs = take(collector, 1)[0], take(control, 1)[0]
            assert list(ours) == list(theirs)
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        if not are_alike:  # The batches of workers that do not wait for each other come in any order.
            take(collector, 4)
            take(control, 4)
        assert collector.statistics().frames == control.statistics().frames
    return len(refused)


def inline():
    return hr.Collector(RandomWalk, Recurrent(), frames_per_batch=8, num_envs=2, seed=0)


def waiting():
    return hr.Collector(
        RandomWalk,
        frames_per_batch=8,
        num_envs=2,
        seed=0,
        reset_when_done=False,
        reset_at_each_iter=True,
        views={"stack": hr.View("observation", shift="-3:0")},
    )


def state_under_way(collector, take):
    """A state with a rollout under way."""
    take(collector, 1)
    with pytest.raises(hr.DeadlineExceeded):
        collector.next(timeout=0)
    return collector.state_dict()


@pytest.mark.parametrize("make", [inline, waiting])
def test_each_part_of_an_inline_state(make, take):
    # CQ3
    with make() as collector:
        state = state_under_way(collector, take)
    assert check_all(make, state, "", take) > 500


def test_a_batch_that_was_not_returned(take):
    # CQ3, CX7
    with inline() as collector:
        batch = take(collector, 1)[0]
        state = {**collector.state_dict(), "unreturned": {name: batch[name] for name in batch}}
    assert check_all(inline, state, "unreturned", take) > 80


def test_a_collector_that_has_not_begun_is_as_new(take):
    # CQ3: its environments were not reset before.
    with inline() as collector:
        state = state_under_way(collector, take)
        place = state["loop"]["stepper"]["environments"][1][0]
    with inline() as collector, inline() as control:
        for other in (
            damaged(state, ("loop", "stepper", "environments", 1, 0), {}),
            {**state, "to_reset": 3},
        ):
            with pytest.raises(ValueError, match="nothing was changed"):
                collector.load_state_dict(other)
        np.testing.assert_array_equal(
            take(collector, 1)[0]["observation"], take(control, 1)[0]["observation"]
        )
    assert set(place) == {"place"}


def test_the_error_of_an_environment_is_named(take):
    # CQ3
    with inline() as collector:
        state = state_under_way(collector, take)
        other = damaged(state, ("loop", "stepper", "environments", 1, 0, "place"), np.zeros(5))
        told = (
            "environments/1/0: expected a state that RandomWalk loads, and it raised ValueError: .* reshape"
        )
        with pytest.raises(ValueError, match=f"loop/stepper/{told}") as raised:
            collector.load_state_dict(other)
        assert isinstance(raised.value.__cause__, ValueError)


def workers(*, sync):
    return hr.MultiCollector(
        RandomWalk,
        Recurrent(),
        sync=sync,
        num_workers=2,
        frames_per_batch=8,
        num_envs=2,
        seed=0,
        restart_workers=False,
    )


SHARED = ["tally", "admission", "waiting", "unreturned", "is_", "partial", "lanes", "versions", "held"]


def state_of_workers(collector, take):
    """A state with batches that wait, a batch that was asked for, and weights that wait for the next one."""
    take(collector, 2)
    for _ in range(5):  # At most two rollouts of each worker are complete.
        with contextlib.suppress(hr.DeadlineExceeded):
            collector.next(timeout=0)
    collector.update_policy_weights_(weights={"gain": np.full(2, 0.5)})
    return collector.state_dict()


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("part", [f"collector/{name}" for name in SHARED])
def test_the_shared_part_of_a_state_of_workers(part, sync, take):
    # CQ3
    with workers(sync=sync) as collector:
        state = state_of_workers(collector, take)
    check_all(lambda: workers(sync=sync), state, part, take, are_alike=sync)


@pytest.mark.parametrize("sync", [True, False])
def test_complete_rollouts_that_nobody_has_begun(sync, take):
    # CQ3: a later call could not take them off the list of those ahead of the learner.
    with workers(sync=sync) as collector:
        take(collector, 1)
        with contextlib.suppress(hr.DeadlineExceeded):
            while True:
                collector.next(timeout=0)
        status, assembled = collector._group.status, collector._group.collection.batches
        with status.changed:
            assert status.changed.wait_for(lambda: len(assembled), 40)
        state = collector.state_dict()
        assert state["collector"]["waiting"]
        lacks = damaged(state, ("collector", "admission", "ahead"), [])
        with pytest.raises(
            ValueError, match="collector/admission/ahead: expected the number . at least . times"
        ):
            collector.load_state_dict(lacks)
        take(collector, 2)


@pytest.mark.parametrize(
    "part", ["rollout", "resets", "generators", "policy_version", "weights", "loop/stepper"]
)
def test_the_part_of_a_worker(part, take):
    # CQ3: no worker loads anything before all have accepted their parts.
    with workers(sync=True) as collector:
        state = state_of_workers(collector, take)
    check_all(lambda: workers(sync=True), state, f"worker1/{part}", take)
