"""What a loader reads and gives, and in which order (loaders LD1, LD3, LD6, LD9, LS1 to LS6)."""

import functools
import inspect
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import headrace as hr
from headrace.loaders import Loader

PREFETCHES = pytest.mark.parametrize("prefetch", [0, 1, 5])


def rows(loader, count):
    return [next(loader).data["x"].tolist() for _ in range(count)]


@PREFETCHES
def test_one_call_one_batch(scripted, numbers, prefetch):
    """LD1."""
    replay, views = scripted(), {"a": hr.View("x")}
    with Loader(replay, "t", 4, views=views, prefetch=prefetch) as loader:
        assert numbers(loader, 10) == list(range(1, 11))
    assert all(call == ("t", 4, views) for call in replay.calls)
    assert 10 <= len(replay.calls) == replay.drawn <= 10 + prefetch


@PREFETCHES
def test_numpy_is_the_sample_itself(scripted, prefetch):
    """LD3."""
    given = []

    class Kept(scripted):
        def sample(self, *args, **kwargs):
            given.append(super().sample(*args, **kwargs))
            return given[-1]

    with Loader(Kept(), "t", 2, prefetch=prefetch) as loader:
        assert [next(loader) for _ in range(3)] == given[:3]
        assert loader._stream.delivered == 3


def test_a_batch_never_changes(make_replay):
    """LD6: also where buffers are used again."""
    replay = make_replay("uniform")
    with Loader(replay, "t", 500, prefetch=2) as loader:
        kept = [next(loader) for _ in range(4)]
        copies = [batch.data["image"].copy() for batch in kept]
        kept[0].data["image"][:] = 99
        for _ in range(20):
            next(loader)
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(4000):
                writer.append({"x": -1, "image": np.zeros(1000, np.uint8)})
        next(loader)
    assert (kept[0].data["image"] == 99).all()
    for batch, copy in zip(kept[1:], copies[1:], strict=True):
        np.testing.assert_array_equal(batch.data["image"], copy)
        np.testing.assert_array_equal(batch.data["image"][:, 0], batch.data["x"] % 256)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"prefetch": -1},
        {"timeout": -0.1},
        {"timeout": float("nan")},
        {"to": "tensorflow"},
        {"device": "cpu"},
        {"to": "torch", "device": "nonsense"},
        {"to": "torch", "device": "cuda:99"},
    ],
)
def test_wrong_arguments(scripted, wrong):
    """LD9."""
    replay = scripted()
    with pytest.raises(ValueError, match=f"^{next(reversed(wrong))}: "):
        Loader(replay, "t", **{"batch_size": 1, **wrong})
    assert replay.turns == 0


@PREFETCHES
def test_unknown_table(make_replay, prefetch):
    """LD9, LD1: at construction; at the first batch where only `sample` of a replay is known."""
    replay = make_replay()
    with pytest.raises(KeyError, match="no table 'nobody'; there are 't'"):
        Loader(replay, "nobody", 1, prefetch=prefetch)
    with Loader(SimpleNamespace(sample=replay.sample), "nobody", 1, prefetch=prefetch) as loader:
        with pytest.raises(KeyError, match="no table 'nobody'; there are 't'"):
            next(loader)


@PREFETCHES
def test_one_stream_without_an_end(make_replay, prefetch):
    """LS1: a second loop goes on, and nothing is lost by a break."""
    with Loader(make_replay(), "t", 10, prefetch=prefetch) as loader:
        seen = []
        for _ in range(3):
            for batch in loader:
                seen += batch.data["x"].tolist()
                if len(seen) % 40 == 0:
                    break
        seen += next(loader).data["x"].tolist()
        assert seen == list(range(130))
        assert iter(loader) is loader
        with pytest.raises(TypeError, match="len"):
            len(loader)


@PREFETCHES
def test_threads_share_the_stream(make_replay, prefetch):
    """LS2: each batch goes to one of them."""
    found, count = [[] for _ in range(4)], 25
    with Loader(make_replay(), "t", 10, prefetch=prefetch) as loader:

        def learn(place):
            found[place] = [next(loader).data["x"][0].item() for _ in range(count)]

        threads = [threading.Thread(target=learn, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(x for each in found for x in each) == list(range(0, 1000, 10))
    assert all(each == sorted(each) for each in found)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_order_does_not_depend_on_prefetching(make_replay, sampler, prefetch):
    """LS3."""
    with Loader(make_replay(sampler), "t", 7, prefetch=0) as loader:
        expected = rows(loader, 40)
    with Loader(make_replay(sampler), "t", 7, prefetch=prefetch) as loader:
        assert rows(loader, 40) == expected


@PREFETCHES
def test_drawn_ahead(scripted, numbers, prefetch):
    """LS4: nothing before the first batch is asked for; then n + p after n deliveries, never more."""
    replay, too_many = scripted(), []

    def look(number):
        # Without prefetching the batch that is asked for is drawn, and no other.
        if number > loader._stream.delivered + max(prefetch, 1):
            too_many.append(number)

    replay.script = {number: functools.partial(look, number) for number in range(99)}
    with Loader(replay, "t", 1, prefetch=prefetch) as loader:
        assert iter(loader) is loader
        assert replay.turns == 0
        for delivered in range(1, 6):
            assert numbers(loader, 1) == [delivered]
            replay.wait_for_draws(delivered + prefetch)
    assert replay.drawn == replay.turns == 5 + prefetch
    assert too_many == []


def test_a_quick_learner_draws_for_itself(scripted, numbers, monkeypatch):
    """LS3, LS4, LS6: who comes back at once gets the same stream; the thread draws when it is away for longer."""
    seconds = [100.0]
    monkeypatch.setattr("headrace.loaders.pace.time.perf_counter", lambda: seconds[0])
    replay, threads = scripted(), []
    replay.script = {number: lambda: threads.append(threading.current_thread()) for number in range(99)}
    with Loader(replay, "t", 1, prefetch=2) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(3)
        # Two were drawn ahead, while it was away for no time at all.
        assert numbers(loader, 7) == [2, 3, 4, 5, 6, 7, 8]
        assert replay.drawn == 8
        assert threads[3:] == [threading.current_thread()] * 5
        seconds[0] += 1.0
        replay.wait_for_draws(10)
        assert threading.current_thread() not in threads[8:]
        seconds[0] += 1.0
        assert numbers(loader, 1) == [9]
        replay.wait_for_draws(11)
        assert threading.current_thread() not in threads[8:]


def test_a_quick_learner_that_is_away_a_moment_later(scripted, numbers, monkeypatch):
    """LS4: the thread looks at the time once, so it cannot see a quick learner and then sleep as if there were none."""
    away, looks, main = [], [101.0, 100.0], threading.current_thread()

    def time_passes_between_two_looks():
        is_a_look = away and threading.current_thread() is not main and len(looks) > 1
        return looks.pop() if is_a_look else (looks[0] if away else 100.0)

    monkeypatch.setattr("headrace.loaders.pace.time.perf_counter", time_passes_between_two_looks)
    replay = scripted()
    with Loader(replay, "t", 1, prefetch=2) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(3)
        assert numbers(loader, 3) == [2, 3, 4]
        away.append(True)
        replay.wait_for_draws(6)


def test_a_learner_that_is_not_quick_any_more_waits_for_no_resting_thread(scripted, numbers, monkeypatch):
    """LS3: it draws for itself until the thread has seen it."""
    seconds, main, has_looked = [100.0], threading.current_thread(), threading.Event()

    def now():
        if threading.current_thread() is not main:
            # It holds the stream's lock from here until it rests.
            has_looked.set()
        return seconds[0]

    monkeypatch.setattr("headrace.loaders.pace.time.perf_counter", now)
    for module in ("pace", "stream"):
        monkeypatch.setattr(f"headrace.loaders.{module}.PATIENCE", 600.0)
    replay = scripted()
    with Loader(replay, "t", 1, prefetch=2, timeout=5) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(3)
        assert numbers(loader, 3) == [2, 3, 4]
        assert has_looked.wait(20)
        seconds[0] += 1.0
        assert numbers(loader, 1) == [5]


def test_a_quick_learner_hears_why_nothing_comes(scripted, numbers, monkeypatch):
    """LW2: as without prefetching, its own draw tells the table's reason, and takes nothing."""
    monkeypatch.setattr("headrace.loaders.pace.time.perf_counter", lambda: 100.0)
    monkeypatch.setattr("headrace.loaders.requests._GRACE", 40.0)  # For a busy machine.
    replay = scripted(allowed=4)
    with Loader(replay, "t", 1, prefetch=1, timeout=0.05) as loader:
        assert numbers(loader, 4) == [1, 2, 3, 4]
        with pytest.raises(hr.DeadlineExceeded, match="waited for 5"):
            next(loader)
        replay.allow(1)
        assert numbers(loader, 1) == [5]


def test_draws_in_the_caller(scripted):
    """LS4: without prefetching there is no thread."""
    threads = []
    replay = scripted(script={1: lambda: threads.append(threading.current_thread())})
    with Loader(replay, "t", 1, prefetch=0) as loader:
        next(loader)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_what_is_drawn_ahead_counts(make_replay, watched, prefetch):
    """LS5: as sampled; and new priorities act p batches later."""
    replay = make_replay("prioritized")
    wrapper = watched(replay)
    with Loader(wrapper, "t", 2, prefetch=prefetch) as loader:
        next(loader)
        wrapper.wait_for_draws(1 + prefetch)
        assert replay.statistics().tables["t"].samples == 2 * (1 + prefetch)
        keys = np.arange(1, 1001, dtype=np.uint64)
        replay.update_priorities("t", keys, np.where(keys == 5, 1.0, 0.0))
        early = [next(loader).info.keys.tolist() for _ in range(prefetch)]
        assert all(pair != [5, 5] for pair in early)
        assert next(loader).info.keys.tolist() == [5, 5]


def test_work_overlaps(scripted, numbers):
    """LS6: while the learner has batch n, batch n + 1 is drawn."""
    replay = scripted(allowed=1)
    with Loader(replay, "t", 1, prefetch=1) as loader:
        for number in range(1, 5):
            assert numbers(loader, 1) == [number]
            # The learner works here, and the next draw goes through.
            replay.allow(1)
            replay.wait_for_draws(number + 1)


def test_a_failing_conversion_is_an_error_in_its_turn(scripted, numbers, monkeypatch):
    """LW3, for what conversions raise: after the batches drawn before, and the stream goes on."""

    def fussy(sample):
        if sample.data["n"][0] == first + 2:
            raise OverflowError("does not fit")
        return sample

    conversion = SimpleNamespace(convert=fussy, deliver=lambda batch: batch)
    monkeypatch.setattr("headrace.loaders.loader.conversion_to", lambda *_: conversion)
    replay = scripted()
    for prefetch in (0, 3):
        with Loader(replay, "t", 1, prefetch=prefetch) as loader:
            first = replay.drawn + 1
            assert numbers(loader, 2) == [first, first + 1]
            with pytest.raises(OverflowError, match="does not fit"):
                next(loader)
            assert numbers(loader, 2) == [first + 3, first + 4]


def test_the_signature_is_that_of_the_interface():
    given = inspect.signature(Loader).parameters
    expected = ["replay", "table", "batch_size", "views", "prefetch", "to", "device", "timeout", "snapshot"]
    assert list(given)[: len(expected)] == expected
    assert (given["prefetch"].default, given["to"].default, given["snapshot"].default) == (2, "numpy", False)


def test_repr_says_where_it_stands(scripted):
    loader = Loader(scripted(), "t", 4, prefetch=0)
    next(loader)
    loader.close()
    assert repr(loader) == "<Loader of 4 from 't' to numpy: 1 delivered, closed>"
