"""A loader's state (loaders LT1 to LT4)."""

import pickle
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.loaders import Loader

PREFETCHES = pytest.mark.parametrize("prefetch", [0, 1, 4])


def keys_of(batch):
    return batch.info.keys.tolist(), batch.info.times_sampled.tolist(), batch.data["x"].tolist()


@pytest.mark.parametrize("later", [0, 1, 6])
@PREFETCHES
def test_goes_on_exactly(make_replay, sampler, prefetch, later):
    """LT1, LT3: for every sampler, and also another prefetch than before."""
    with Loader(make_replay(sampler), "t", 7, prefetch=0) as loader:
        expected = [keys_of(next(loader)) for _ in range(20)]

    replay = make_replay(sampler)
    with Loader(replay, "t", 7, prefetch=prefetch) as loader:
        seen = [keys_of(next(loader)) for _ in range(5)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
    assert type(state) is dict
    # The replay as a checkpoint would have it: as many draws behind it, and nothing else.
    restored = make_replay(sampler)
    assert state["delivered"] == 5
    assert len(state["batches"]) <= prefetch
    for _ in range(state["delivered"] + len(state["batches"])):
        restored.sample("t", 7)
    assert replay.statistics().tables["t"].samples == restored.statistics().tables["t"].samples
    with Loader(restored, "t", 7, prefetch=later) as loader:
        loader.load_state_dict(state)
        seen += [keys_of(next(loader)) for _ in range(15)]
        assert loader.state_dict()["delivered"] == 20
    assert seen == expected


def test_waits_for_the_draw_in_progress(scripted, numbers):
    """LT2: what is being drawn is in the state, and nothing is drawn after it until the next batch is asked for."""
    begun, let_go = threading.Event(), threading.Event()
    replay = scripted(script={2: lambda: (begun.set(), let_go.wait())})
    with Loader(replay, "t", 1, prefetch=3) as loader:
        states = []
        assert numbers(loader, 1) == [1]
        assert begun.wait(10)
        saving = threading.Thread(target=lambda: states.append(loader.state_dict()))
        held = hold_seen(loader)
        saving.start()
        assert held.wait(10)
        assert states == []
        let_go.set()
        saving.join()
        assert [batch.data["n"][0] for batch in states[0]["batches"]] == [2]
        assert (states[0]["delivered"], replay.turns) == (1, 2)
        # The thread has looked again since, and leaves it at that.
        loader._stream.hold()
        loader._stream.release()
        assert replay.turns == 2
        assert numbers(loader, 1) == [2]
        replay.wait_for_draws(5)


def hold_seen(loader):
    """An event that is set when somebody has begun to hold the stream."""
    seen, stream = threading.Event(), loader._stream
    wait = stream._clock.wait

    class Clock:
        monotonic = stream._clock.monotonic

        def wait(self, condition, timeout):
            if stream._holds:
                seen.set()
            return wait(condition, timeout)

    stream._clock = Clock()
    return seen


def test_a_starved_draw_does_not_hold_it_up(scripted):
    """LT2: a draw that waits for data has taken nothing."""
    replay = scripted(allowed=1)
    with Loader(replay, "t", 1, prefetch=2) as loader:
        next(loader)
        replay.wait_for_turns(2)
        assert loader.state_dict() == {"table": "t", "delivered": 1, "batches": []}


@PREFETCHES
def test_who_waits_meanwhile_is_served(scripted, prefetch):
    """LT2: a batch that another thread waits for has been asked for."""
    replay = scripted(allowed=0)
    with Loader(replay, "t", 1, prefetch=prefetch) as loader:
        found = []
        thread = threading.Thread(target=lambda: found.append(next(loader).data["n"][0]))
        thread.start()
        replay.wait_for_turns(1)
        loader.state_dict()
        replay.allow(1)
        thread.join()
        assert found == [1]


def test_a_quick_learner_whose_draw_was_refused_meanwhile_is_served(scripted, numbers, monkeypatch):
    """LT1: a state that another thread asks for between two turns of a learner stops no drawing for it."""
    seconds = [100.0]
    monkeypatch.setattr("headrace.loaders.pace.time.perf_counter", lambda: seconds[0])
    replay, states = scripted(allowed=2), []
    with Loader(replay, "t", 1, prefetch=1, timeout=5) as loader:
        assert numbers(loader, 2) == [1, 2]
        draw = loader._stream._draw_one

        def then_comes_a_state(*arguments):
            batch = draw(*arguments)
            if threading.current_thread() is threading.main_thread() and not states:
                states.append(loader.state_dict())
                seconds[0] += 1.0
                replay.allow(1)
            return batch

        monkeypatch.setattr(loader._stream, "_draw_one", then_comes_a_state)
        assert numbers(loader, 1) == [3]
    assert states[0]["delivered"] == 2
    assert states[0]["batches"] == []


@PREFETCHES
def test_a_state_is_a_copy(scripted, prefetch):
    """LT1: the learner may write into what it gets, after the state was taken and after it was loaded."""
    replay = scripted()
    with Loader(replay, "t", 3, prefetch=prefetch) as loader:
        next(loader)
        replay.wait_for_draws(1 + prefetch)
        state = loader.state_dict()
        for _ in range(prefetch):
            next(loader).data["n"][:] = -1
    for _ in range(2):
        with Loader(scripted(), "t", 3, prefetch=0) as loader:
            loader.load_state_dict(state)
            for number in range(2, 2 + prefetch):
                batch = next(loader)
                np.testing.assert_array_equal(batch.data["n"], [number] * 3)
                batch.data["n"][:] = -1


def test_only_before_the_first_batch(scripted):
    """LT3."""
    with Loader(scripted(), "t", 1) as loader:
        state = loader.state_dict()
        loader.load_state_dict(state)
        loader.load_state_dict(state)
        next(loader)
        with pytest.raises(RuntimeError, match="first batch"):
            loader.load_state_dict(state)
        next(loader)


def test_other_tables_and_sizes(scripted):
    """LT4: another batch size is fine, another table is not; nor is anything else."""
    replay = scripted()
    with Loader(replay, "t", 3, prefetch=1) as loader:
        next(loader)
        replay.wait_for_draws(2)
        state = loader.state_dict()
    with Loader(scripted(), "other", 3) as loader:
        with pytest.raises(ValueError, match="expected that of table 'other', got that of table 't'"):
            loader.load_state_dict(state)
    with Loader(scripted(), "t", 5, prefetch=0) as loader:
        for wrong in ({}, {"table": "t"}, None, [1]):
            with pytest.raises(ValueError, match="as state_dict gives"):
                loader.load_state_dict(wrong)
        loader.load_state_dict(state)
        assert [len(next(loader).data["n"]) for _ in range(3)] == [3, 5, 5]


@pytest.mark.parametrize("to", ["torch", "jax"])
def test_a_state_is_numpy(scripted, to):
    """LT4: it loads with another framework."""
    pytest.importorskip(to)
    replay = scripted()
    with Loader(replay, "t", 3, prefetch=2, to=to) as loader:
        next(loader)
        replay.wait_for_draws(3)
        state = loader.state_dict()
    assert [type(batch.data["n"]) for batch in state["batches"]] == [np.ndarray] * 2
    assert b"torch" not in pickle.dumps(state)
    with Loader(scripted(), "t", 3, prefetch=2) as loader:
        loader.load_state_dict(state)
        assert [next(loader).data["n"][0] for _ in range(3)] == [2, 3, 1]
    with Loader(scripted(), "t", 3, prefetch=2, to=to) as loader:
        loader.load_state_dict(state)
        assert [int(next(loader).data["n"][0]) for _ in range(3)] == [2, 3, 1]


def test_with_a_checkpoint(make_replay, sampler, tmp_path):
    """LT2, LT3: the pair of a state and a checkpoint, saved while the thread runs."""
    with Loader(make_replay(sampler), "t", 7, prefetch=3) as loader:
        for _ in range(5):
            next(loader)
        state = loader.state_dict()
        path = loader._replay.save(tmp_path)
        expected = [keys_of(next(loader)) for _ in range(10)]
    with hr.Replay.load(path) as replay, Loader(replay, "t", 7, prefetch=1) as loader:
        loader.load_state_dict(state)
        assert [keys_of(next(loader)) for _ in range(10)] == expected
