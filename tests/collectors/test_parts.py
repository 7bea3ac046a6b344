"""The pure parts: numbering of trajectories and grants, against plain models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.channel import Channel, Proceed, Rows, Stop
from headrace.collectors.grants import Grants
from headrace.collectors.landlord import Landlord
from headrace.collectors.rollout import EpisodeLedger, rollout_layout
from headrace.collectors.statistics import Tally
from headrace.replay.public import core_of


@st.composite
def histories(draw):
    """Rollouts of ends, masks (the step after an end, sometimes) and resets of all copies."""
    envs, steps, rollouts = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    shape = (rollouts * steps, envs)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ended = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    masked = np.zeros(shape, bool)
    if draw(st.booleans()):
        for step in range(1, len(ended)):
            masked[step] = ended[step - 1]
            ended[step] &= ~masked[step]
    restarted = rng.random(len(ended)) < draw(st.sampled_from([0.0, 0.3]))
    rewards = np.where(masked, 0, rng.integers(-5, 5, shape)).astype(np.float32)
    return steps, ended, masked, restarted, rewards


@given(histories())
def test_numbering_against_a_plain_count(history):
    # CB5, and returns and lengths of what ended.
    steps, ended, masked, restarted, rewards = history
    ledger = EpisodeLedger(ended.shape[1])
    found = []
    for begin in range(0, len(ended), steps):
        part = slice(begin, begin + steps)
        starts = ledger.starts(ended[part], masked[part], restarted[part])
        found.append(ledger.number(starts, ended[part], masked[part], rewards[part]))
    ids, positions = (np.concatenate(each) for each in zip(*found, strict=True))

    next_id = 0
    current = [-1] * ended.shape[1]
    length, total = [0] * ended.shape[1], [0.0] * ended.shape[1]
    begins = [True] * ended.shape[1]
    finished = []
    for step in range(len(ended)):
        for env in range(ended.shape[1]):
            begins[env] |= bool(restarted[step])
            if masked[step, env]:
                assert (ids[step, env], positions[step, env]) == (-1, 0)
                continue
            if begins[env]:
                current[env], length[env], total[env] = next_id, 0, 0.0
                next_id += 1
            assert (ids[step, env], positions[step, env]) == (current[env], length[env])
            length[env] += 1
            total[env] += float(rewards[step, env])
            begins[env] = bool(ended[step, env])
            if ended[step, env]:
                finished.append((total[env], length[env]))
    assert sorted(ledger.take_finished()) == sorted(finished)
    assert ledger.take_finished() == []


def test_grants_stop_at_the_total():
    begun, tally = [], Tally()
    grants = Grants(tally, 10, 30, lambda: False, begun.append)
    grants.owe(2)
    for _ in range(5):
        tally.add(10, [], [(0, 10)], 0, batches=1)
        grants.owe(1)
    assert begun == [0, 1, 2]


def test_grants_go_on_where_rows_were_masked():
    # CR3: those under way count in full, so never more is begun than is needed.
    begun, tally = [], Tally()
    grants = Grants(tally, 10, 18, lambda: False, begun.append)
    grants.owe(2)
    assert begun == [0, 1]
    tally.add(8, [], [], 0, batches=1)
    grants.owe(1)
    assert begun == [0, 1]  # 8 + 10 may be enough ...
    tally.add(8, [], [], 0, batches=1)
    grants.owe(1)
    assert begun == [0, 1, 2]  # ... but was not.


def test_grants_wait_while_blocked():
    begun, blocked = [], [True]
    grants = Grants(Tally(), 10, -1, lambda: blocked[0], begun.append)
    grants.owe(2)
    assert begun == []
    blocked[0] = False
    grants.settle()
    assert begun == [0, 1]


def test_tally():
    tally = Tally()
    tally.add(4, [(3.0, 2), (5.0, 4)], [(1, 3), (2, 1), (-1, 2)], 3, batches=1)
    record = tally.record(running=True, paused=False)
    assert (record.frames, record.batches, record.episodes) == (4, 1, 2)
    assert (record.episode_return_mean, record.episode_length_mean) == (4.0, 3.0)
    assert (record.lag_min, record.lag_mean, record.lag_max) == (1, 1.75, 2)
    assert record.lag_histogram == {2: 3, 1: 1}
    with pytest.raises(AttributeError):
        record.frames = 3
    for _ in range(200):
        tally.add(1, [(1.0, 1)], [], 3, batches=1)
    assert tally.record(running=False, paused=False).episode_return_mean == 1.0  # Of the last 100.


def test_both_processes_place_a_rollout_alike():
    # The order of a set of strings differs from process to process.
    names = [f"observation/{letter}" for letter in "badcfe"]
    signature = hr.Signature(
        {
            "observation": {name[-1]: hr.ArraySpec((), np.int64) for name in names},
            "action": hr.ArraySpec((), np.int64),
        }
    )
    layout = rollout_layout(signature, frozenset(names), 3, 2)
    assert [name for name in layout.places if name.startswith("final:")] == [
        f"final:{n}" for n in sorted(names)
    ]


def test_messages_travel_whole():
    one, other = Channel.pair()
    rows = Rows(
        page=3, steps=4, finals=1, frames=8, episodes=[(1.5, 3)], stamps={-1: 4, 7: 4}, page_full=False,
        closes_rollout=True, cuts=0, seconds=(0.1, 0.2, 0.3),
    )  # fmt: skip
    for message in (rows, Proceed(slot=1), Stop(close_env=False)):
        one.send(message)
        assert other.receive() == (message, [])
    one.close()
    with pytest.raises(hr.Disconnected):
        other.receive()
    with pytest.raises(hr.Disconnected):
        other.send(Proceed(slot=0))
    other.close()


def test_what_comes_while_a_collector_is_shut_down_is_not_taken(monkeypatch):
    """CX6, CX8: its pages may be another writer's by then."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"observation": 0}), [table]) as replay:
        leases = []
        landlord = Landlord(
            core_of(replay),
            [hr.ItemRule("t", 1)],
            1,
            leases.append,
            all_applied=lambda: None,
            may_wait=lambda: False,
        )
        landlord.begin(["observation"])
        check = landlord._check

        def check_and_close(rows):
            check(rows)
            landlord.close()

        monkeypatch.setattr(landlord, "_check", check_and_close)
        rows = Rows(
            page=leases[0].page,
            steps=1,
            finals=0,
            frames=1,
            episodes=[],
            stamps={},
            page_full=False,
            closes_rollout=False,
            cuts=0,
            seconds=(0.0, 0.0, 0.0),
        )
        with pytest.raises(hr.Closed, match="shut down"):
            landlord.commit(rows)
        assert len(replay.table("t")) == 0
        assert replay.statistics().store.rows == 0
