"""Rows of an inline collector on their way into a replay elsewhere: what is open after StoreFull or Ctrl-C."""

import itertools

import numpy as np
import pytest

import headrace as hr
from headrace.collectors.inline.writer_output import WriterOutput
from headrace.replay.public import core_of
from headrace.replay.shards.replay import ShardedReplay
from headrace.tables.description.rules import ItemRule
from tests.collectors.counting_lanes import SIGNATURE, Lanes

LANES = 3


def table():
    return hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100_000)


@pytest.fixture(params=["writer", "shards", "client"])
def made(request, tmp_path, make_replay):
    """Makes the output into a replay elsewhere, and a handle on that replay."""
    ends = []

    def make(capacity=None):
        if request.param == "shards":
            parts = [make_replay(SIGNATURE, table(), capacity=capacity) for _ in range(2)]
            replay = ShardedReplay([lambda part=part: part for part in parts], seed=0)
            ends.append(replay.close)
        else:
            replay = make_replay(SIGNATURE, table(), capacity=capacity)
        given = replay
        if request.param == "client":
            server = hr.Server({"r": replay}, address=None, unix=tmp_path / f"socket{len(ends)}").start()
            client = hr.Client(server.address)
            given = client.replay("r")
            ends.extend([server.stop, client.close, given.close])
        output = WriterOutput(given, LANES, ["observation"], [ItemRule("t", length=1, lookahead=1)])
        return output, replay

    yield make
    for end in reversed(ends):
        end()


def stored(replay):
    """The observations of all items, whose next ones are checked."""
    count = len(replay.table("t"))
    if not count:
        return []
    data = replay.sample("t", 50 * count, views=hr.views.transition(), timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], np.add(data["observation"], [0, 0, 1]))
    return sorted(set(map(tuple, data["observation"].tolist())))


def scenario(output, lanes, taken):
    """Writes two rollouts, with a reset of some lanes between them and of all behind them; then closes."""
    ends = np.array([[False, True, False], [False, False, True], [False, False, False]])
    for chosen in (np.array([0, 1]), None):
        steps = lanes.steps(ends)
        taken += [tuple(row) for row in steps.columns["observation"].reshape(-1, 3).tolist()]
        output.write(steps, lanes.now)
        output.cut(chosen)
        lanes.begin_episodes(slice(None) if chosen is None else chosen)


def test_ctrl_c_anywhere_leaves_the_output_usable(made, interrupt_at):
    # CX1, CX7: what is written after it is whole, and no item is there twice or without its next observation.
    output, replay = made()
    for point in itertools.count():
        lanes, taken = Lanes(LANES), []
        lanes.episode += 1000 * point  # So each time has observations of its own.
        within = ["collectors/inline", "step_appender"]
        if not interrupt_at(point, scenario, output, lanes, taken, within=within):
            break
        output.cut()
        lanes.begin_episodes(slice(None))
        again = lanes.steps(np.zeros((2, LANES), bool))
        output.write(again, lanes.now)
        output.cut()
        output._writer.flush(timeout=40)
        rows = [row for row in stored(replay) if row[1] >= 1000 * point]
        expected = set(map(tuple, again.columns["observation"].reshape(-1, 3).tolist()))
        assert expected <= set(rows) <= expected | set(taken)
        assert len(replay.table("t")) == len(rows)
        replay.reset("t")
    assert point > 50
    output.close()


class Deferring:
    """A writer that sends the ends of episodes without waiting, and has sent all when `pending` is known."""

    def __init__(self, writer):
        vars(self).update(writer=writer, calls=[])

    def __getattr__(self, name):
        return getattr(self.writer, name)

    def __setattr__(self, name, value):
        setattr(self.writer, name, value)

    def end_lanes(self, *args):
        self.calls.append(args)

    @property
    def pending(self):
        while self.calls:
            self.writer.end_lanes(*self.calls.pop(0))
        return self.writer.pending


def test_what_a_cut_has_ended_is_stored_when_it_returns(make_replay):
    # CF6: a pause may follow at once.
    replay = make_replay(SIGNATURE, table())

    class Elsewhere:
        signature = replay.signature

        @staticmethod
        def row_writer(*args, **options):
            return Deferring(replay.row_writer(*args, **options))

    output = WriterOutput(Elsewhere(), LANES, ["observation"], [ItemRule("t", length=1, lookahead=1)])
    lanes = Lanes(LANES)
    output.write(lanes.steps(np.zeros((4, LANES), bool)), lanes.now)
    assert len(replay.table("t")) == 3 * LANES
    output.cut()
    assert len(replay.table("t")) == 4 * LANES
    output.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_that_found_no_page_can_be_repeated(made, seed):
    # CF2, CQ2: as with a replay of this process.
    rng = np.random.default_rng(seed)
    output, replay = made(64)
    lanes, refused = Lanes(LANES), {"write": 0, "cut": 0}

    def cut(chosen):
        try:
            output.cut(chosen)
        except hr.StoreFull:
            refused["cut"] += 1
            free(replay)
            output.cut(chosen)
        lanes.begin_episodes(chosen)
        assert not output._writer.open_lanes[chosen].any()

    for _ in range(60):
        ends = rng.random((rng.integers(1, 4), LANES)) < 0.2
        try:
            output.write(lanes.steps(ends), lanes.now)
        except hr.StoreFull:
            refused["write"] += 1
            cut(np.arange(LANES))
            free(replay)
        else:
            assert output._writer.open_lanes.tolist() == (~ends[-1]).tolist()
            if rng.random() < 0.5:
                cut(np.flatnonzero(rng.random(LANES) < 0.5))
        stored(replay)
    free(replay)
    output.close()
    assert refused["write"]


@pytest.mark.parametrize("seed", range(3))
def test_where_the_store_is_full_no_row_is_lost_or_there_twice(made, seed):
    # CF2, CQ2: a write that fails stores some of its rows, each once. It ends the episodes: the newest transition
    # before it may lack its next observation, and is no item then.
    rng = np.random.default_rng(seed)
    output, replay = made(64)
    lanes, refused = Lanes(LANES), 0
    for _ in range(20):
        written, failed, found = [], [], []
        for _ in range(rng.integers(1, 40)):
            steps = lanes.steps(rng.random((rng.integers(1, 4), LANES)) < 0.2)
            rows = [tuple(row) for row in steps.columns["observation"].reshape(-1, 3).tolist()]
            try:
                output.write(steps, lanes.now)
            except hr.StoreFull:
                failed = rows
                break
            written += rows
        try:
            output.cut()
        except hr.StoreFull:
            found = taken(output, replay)
            output.cut()
        lanes.begin_episodes(slice(None))
        found += taken(output, replay)
        assert sorted(set(found)) == sorted(found)
        assert set(found) <= {*written, *failed}
        newest = {
            max(row for row in written if row[0] == lane) for lane in range(LANES) if failed and written
        }
        assert set(written) - set(found) <= newest
        refused += bool(failed)
    assert refused > 3
    output.close()


def taken(output, replay):
    """The observations of all items, each as often as it is there; the table is empty then."""
    output._writer.flush(timeout=40)
    rows = stored(replay)
    assert len(rows) == len(replay.table("t")), "an item is there twice"
    free(replay)
    return rows


def free(replay):
    replay.reset("t")


def test_ctrl_c_while_items_wait_loses_nothing_that_was_written(made, monkeypatch):
    # CF2, CX7: as with a replay of this process.
    output, replay = made()
    lanes, calls = Lanes(LANES), []
    steps = lanes.steps(np.zeros((4, LANES), bool))
    wait = output._writer.wait_to_append

    def interrupted():
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        wait()

    monkeypatch.setattr(output._writer, "wait_to_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write(steps, lanes.now)
    output.cut()
    output.write(steps, lanes.now)
    output.close()
    # Two steps of every lane before the interrupt, and four after it.
    assert len(replay.table("t")) == 6 * LANES
    stored(replay)


@pytest.mark.parametrize("made", ["writer"], indirect=True)
def test_a_cut_whose_items_find_no_memory_has_ended_the_episodes(made, monkeypatch):
    # replay C3: the call raises, and the rows are stored.
    output, replay = made()
    lanes = Lanes(LANES)
    output.write(lanes.steps(np.zeros((2, LANES), bool)), lanes.now)
    live = core_of(replay).live_table("t")

    def no_memory(*_):
        raise hr.StoreFull("no memory")

    with monkeypatch.context() as without:
        without.setattr(live, "offer", no_memory)
        with pytest.raises(hr.StoreFull, match="items of it were not made"):
            output.cut()
    output.cut()
    lanes.begin_episodes(slice(None))
    output.write(lanes.steps(np.zeros((2, LANES), bool)), lanes.now)
    output.close()
    assert len(stored(replay)) == LANES + 2 * LANES
