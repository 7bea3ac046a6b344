"""A writer that cannot map the arena: its columns come as a payload."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.checking import LeaseError
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import Destination, ReplayItems
from headrace.leases.forwarding import CommitForwarder, Steps
from headrace.leases.frames import Frame
from headrace.leases.grantor import BY_COPY, Ahead, LeaseGrantor
from headrace.leases.messages import Commit
from headrace.leases.payload import packed_columns
from headrace.replay.public import core_of
from headrace.store.store import Store

SIGNATURE = hr.Signature.like(
    {"observation": np.zeros(3, np.float32), "action": np.int16(0), "flag": np.bool_(0)}
)
NOTHING = np.empty(0, np.int64)


def table():
    return hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=10_000, max_times_sampled=1
    )


class Remote:
    """A forwarder whose commits travel as bytes."""

    def __init__(self, replay, lanes):
        core = core_of(replay)
        self.forwarder = CommitForwarder(self.send, core.store.arrays.page_rows, lanes)
        self.connection = LeaseConnection(core.store, self.forwarder.take)
        grantor = LeaseGrantor(
            ReplayItems(core, [hr.ItemRule("t", 1, lookahead=1)]), lanes, self.forwarder.take, ahead=BY_COPY
        )
        self.connection.grantors[0] = grantor
        grantor.open(["observation"])
        grantor.lease_owed()

    def send(self, commit, columns, finals):
        if not columns:
            columns = {
                name: np.zeros((0, 1, *spec.shape), spec.dtype) for name, spec in SIGNATURE.columns.items()
            }
        whole = {
            name: finals.get(name, np.zeros((len(commit.final_rows) // 8, *spec.shape), spec.dtype))
            for name, spec in SIGNATURE.columns.items()
        }
        payload = packed_columns(SIGNATURE, columns, whole)
        self.connection.take(Frame(commit, payload, []))


@given(
    st.integers(1, 4), st.integers(1, 60), st.lists(st.integers(0, 400), max_size=20), st.integers(0, 2**32)
)
def test_steps_arrive_whole(lanes, count, ends, seed):
    rng = np.random.default_rng(seed)
    ended = np.unique([end for end in ends if end < count * lanes]).astype(np.int64)
    columns = {
        "observation": rng.random((count, lanes, 3), np.float32),
        "action": rng.integers(0, 1000, (count, lanes)).astype(np.int16),
        "flag": rng.random((count, lanes)) < 0.5,
    }
    finals = {"observation": rng.random((len(ended), 3), np.float32)}
    steps = Steps(columns, np.ones(count, np.int32), NOTHING, NOTHING, ended, finals)
    following = rng.random((lanes, 3), np.float32)
    with hr.Replay(SIGNATURE, [table()], capacity=400) as replay:  # A page has 12 rows.
        remote, first = Remote(replay, lanes), 0
        while first < count:
            stop = min(count, first + remote.forwarder.free)
            remote.forwarder.forward(steps.part(first, stop, slice(0, lanes)))
            first = stop
        open_lanes = np.setdiff1d(np.arange(lanes), ended - (count - 1) * lanes)
        remote.forwarder.cut(open_lanes, {"observation": following[open_lanes]})
        assert len(replay.table("t")) == count * lanes
        views = {
            "observation": hr.View("observation"),
            "action": hr.View("action"),
            "flag": hr.View("flag"),
            "next_observation": hr.View("observation", shift=1),
        }
        data = replay.sample("t", count * lanes, views=views, timeout=5).data
        after = np.concatenate([columns["observation"][1:], following[None]])
        after[np.divmod(ended, lanes)] = finals["observation"]
        found = np.lexsort((data["observation"][:, 1], data["observation"][:, 0]))
        flat = {name: column.reshape(count * lanes, *column.shape[2:]) for name, column in columns.items()}
        wanted = np.lexsort((flat["observation"][:, 1], flat["observation"][:, 0]))
        for name, column in flat.items():
            np.testing.assert_array_equal(data[name][found], column[wanted])
        np.testing.assert_array_equal(data["next_observation"][found], after.reshape(-1, 3)[wanted])
        remote.connection.close()
        assert replay.statistics().store.pages == 0


@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_a_payload_of_another_length_is_refused(change):
    with hr.Replay(SIGNATURE, [table()], capacity=400) as replay:
        remote = Remote(replay, 1)
        commit = Commit(writer=0, sequence=1, page=0, steps=2, versions=bytes(8))
        with pytest.raises(LeaseError, match="payload"):
            remote.connection.take(Frame(commit, bytes(2 * SIGNATURE.nbytes + change), []))
        assert len(replay.table("t")) == 0
        remote.connection.close()


class Written:
    """A writer of rollouts on another machine: two lanes, pages of six steps, two pages of rows ahead."""

    def __init__(self, pages=2):
        self.store = Store(SIGNATURE, page_rows=12, num_pages=8)
        self.grantor = LeaseGrantor(
            Destination(self.store), 2, lambda *messages: None, ahead=Ahead(rows=pages, finals=2)
        )
        self.connection = LeaseConnection(self.store, lambda *messages: None)
        self.connection.grantors[0] = self.grantor
        self.grantor.open(["observation"])
        self.grantor.lease_owed()

    def take(self, steps, following):
        values = {name: np.ones((steps, 2, *spec.shape)) for name, spec in SIGNATURE.columns.items()}
        finals = {name: np.ones((0, *spec.shape)) for name, spec in SIGNATURE.columns.items()}
        columns, finals = cast(values), cast(finals)
        payload = packed_columns(SIGNATURE, columns, finals, {"observation": np.float32(following)})
        versions = np.ones(steps, np.int32).tobytes()
        commit = Commit(writer=0, sequence=1, page=0, steps=steps, versions=versions, shows_next=True)
        self.connection.take(Frame(commit, payload, []))

    def close(self):
        self.connection.close()
        self.store.close()


def cast(columns):
    return {name: values.astype(SIGNATURE.columns[name].dtype) for name, values in columns.items()}


@pytest.mark.parametrize("steps", [2, 5, 6])
def test_the_observations_after_the_last_step_end_its_episodes(steps):
    # They are final rows of a writer that dies, in the next page too.
    written, following = Written(), np.arange(6).reshape(2, 3)
    written.take(steps, following)
    written.grantor.end_episodes()
    links = written.store.arrays.links[(steps - 1) * 2 : steps * 2].astype(int) - 1
    np.testing.assert_array_equal(written.store.columns["observation"][links], following)
    written.close()


def test_observations_beyond_the_leased_pages_are_refused():
    written = Written(pages=1)
    with pytest.raises(LeaseError, match="shows_next"):
        written.take(6, np.zeros((2, 3)))
    written.take(5, np.zeros((2, 3)))
    written.close()
