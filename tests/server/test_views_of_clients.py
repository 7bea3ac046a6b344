"""Views that look beyond their items see the same rows whoever wrote them (CL3, LP4, and V16, V17 of views)."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr

SIGNATURE = hr.Signature.like({"n": 0})
SHIFTS = [-40, -9, -2, -1, 0, 1, 3]
VIEWS = {"n": hr.View("n"), "seen": hr.View("n", shift=SHIFTS, mask=True)}
SECONDS = 20.0

# "s" appends a step, "e" ends the episodes of all lanes, "c" cuts the connection.
calls = st.lists(st.sampled_from(["s" * 3, "s" * 40, "e", "c"]), min_size=1, max_size=12).map("".join)
rules = st.builds(hr.ItemRule, st.just("t"), st.integers(1, 4), stride=st.sampled_from([1, 2, 5]))


def write(replay, calls, lanes, rule, history, cut=None):
    """Writes steps `{"n": 1000 * lane + count}`."""
    with replay.writer(lanes=lanes, items=[rule], history=history) as writer:
        count = last_end = 0
        for call in calls:
            if call == "s":
                writer.append({"n": (np.arange(lanes) * 1000 + count).reshape((lanes,) if lanes > 1 else ())})
                count += 1
            elif call == "e" and count > last_end:
                writer.end_episode()
                last_end = count
            elif call == "c" and cut is not None:
                writer.flush(SECONDS)
                cut()


def shown(replay):
    """Returns what the views show of all items, in the order of their keys."""
    keys = sorted(int(key) for item in replay.items("t") for key in item.info.keys)
    return dict(replay.get("t", keys, views=VIEWS).data) if keys else {}


def new_replay(size):
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=size)
    return hr.Replay(SIGNATURE, [table], capacity=2000)


@contextmanager
def served(replay, is_unix):
    """A client of a server of the replay."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"address": None, "unix": Path(folder) / "s"} if is_unix else {}
        with (
            hr.Server({"r": replay}, **options) as server,
            hr.Client(server.address, timeout=SECONDS) as client,
        ):
            yield client


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


drawn = given(
    st.booleans(), calls, st.integers(1, 3), rules, st.sampled_from([3, 50]), st.sampled_from([None, 12])
)


@settings(max_examples=40, deadline=None)
@drawn
def test_a_client_writes_and_sees_what_the_replay_itself_does(is_unix, calls, lanes, rule, size, history):
    with new_replay(size) as local, new_replay(size) as replay, served(replay, is_unix) as client:
        write(local, calls, lanes, rule, history)
        write(client.replay("r"), calls, lanes, rule, history)
        expected = shown(local)
        assert same(shown(client.replay("r")), expected)
        assert same(shown(replay), expected)


@settings(max_examples=40, deadline=None)
@drawn
def test_rows_before_a_lost_connection_are_seen_or_unknown(is_unix, calls, lanes, rule, size, history):
    """Views of later items may not see them; other rows are never shown in their place."""
    with new_replay(size) as replay, served(replay, is_unix) as client:

        def cut():
            client._session._writers.channel.shutdown()

        write(client.replay("r"), calls, lanes, rule, history, cut)
        for found in shown(replay), shown(client.replay("r")):
            if found:
                mask = found["seen_mask"]
                assert (found["seen"] == np.where(mask, found["n"][..., None] + SHIFTS, 0)).all()
                assert mask[..., SHIFTS.index(0)].all()
