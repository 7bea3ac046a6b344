"""server CL3: step writers and observers make the same items over a client as in the server's process."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.intake.later_made import LaterMade
from headrace.server.client.writers.made_items import MadeItems
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.messages.writing import WriterState

STEP = {
    "observation": {"x": np.zeros(3, np.float32)},
    "action": np.int64(0),
    "reward": np.float32(0),
    "terminated": False,
    "truncated": False,
}
TABLES = ("transitions", "windows", "episodes")


def new_replay():
    fifo = hr.selectors.Fifo()
    return hr.Replay(
        hr.Signature.like(STEP),
        [hr.Table(name, sampler=fifo, remover=fifo, max_size=1000, max_times_sampled=1) for name in TABLES],
    )


def rules():
    return [
        hr.NStepRule("transitions", n_step=2),
        hr.ItemRule("windows", 4, stride=2, end=hr.EndOfEpisode.PAD),
        hr.EpisodeRule("episodes", max_length=50),
    ]


def observation(*numbers):
    return {"x": np.stack([np.full(3, n, np.float32) for n in numbers])}


def by_steps(replay):
    """Episodes of different lengths; returns the keys of each step."""
    made = []
    with hr.StepWriter(replay, rules()) as writer:
        for length in (1, 5, 9):
            writer.add_first({"x": np.zeros(3, np.float32)})
            for t in range(length):
                is_last = t == length - 1
                following = {"x": np.full(3, t + 1, np.float32)}
                keys = writer.add(t, t / 2, is_last and length == 5, is_last and length != 5, following)
                made.append(keys)
        writer.flush(10)
        return made, writer.statistics()


def by_lanes(replay):
    """Three environments with same-step autoreset, whose ends fall on different steps."""
    made = []
    with hr.StepWriter(replay, rules(), lanes=3, autoreset="same_step") as writer:
        writer.add_first(observation(0, 100, 200))
        for t in range(1, 20):
            ends = np.array([t % 5 == 0, t % 7 == 0, False])
            keys = writer.add(
                np.full(3, t),
                np.full(3, t / 2, np.float32),
                ends,
                np.zeros(3, np.bool_),
                observation(t, 100 + t, 200 + t),
                final_observation=observation(-t, -100 - t, -200 - t),
            )
            made.append(keys)
        made.append(writer.reset())
        writer.flush(10)
        return made, writer.statistics()


def by_transitions(replay):
    with hr.TransitionWriter(replay, "transitions", n_step=3) as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        for t in range(10):
            writer.add(t, 1.0, t == 9, False, {"x": np.full(3, t, np.float32)})
        return writer.statistics()


def by_episodes(replay):
    with hr.EpisodeWriter(replay, "episodes", 5, overflow="split") as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        for t in range(12):
            writer.add(t, 1.0, False, t == 11, {"x": np.full(3, t, np.float32)})
        return writer.statistics()


def items(replay):
    found = {}
    for name in TABLES:
        count = len(replay.table(name))
        if count:
            batch = replay.sample(name, count, timeout=0)
            found[name] = batch.data, batch.mask, batch.info.priorities
    return found


@pytest.mark.parametrize("program", [by_steps, by_lanes, by_transitions, by_episodes])
def test_a_program_gives_the_same_over_a_client(program, tmp_path):
    with new_replay() as local, new_replay() as served:
        expected = program(local)
        with hr.Server({"r": served}, address=None, unix=tmp_path / "s") as server:
            with hr.Client(server.address) as client:
                remote = client.replay("r")
                assert program(remote) == expected
                np.testing.assert_equal(items(remote), items(local))


def test_an_observer_gives_the_same_over_a_client():
    frame = hr.Trajectory(
        step_type=hr.StepType.FIRST,
        observation=np.zeros(2, np.float32),
        action=np.int64(0),
        policy_info=(),
        next_step_type=hr.StepType.MID,
        reward=np.float32(0),
        discount=np.float32(1),
    )
    fifo = hr.selectors.Fifo()
    tables = [hr.Table("t", sampler=fifo, remover=fifo, max_size=100)]
    found = []

    def observe(replay):
        with hr.AddTrajectoryObserver(replay, "t", 3, stride_length=2) as observer:
            for n in range(11):
                types = [hr.StepType.FIRST, *[hr.StepType.MID] * 4, hr.StepType.LAST, hr.StepType.FIRST]
                observer(
                    frame._replace(
                        observation=np.full(2, n, np.float32),
                        step_type=types[n % 6],
                        next_step_type=types[n % 6 + 1],
                    )
                )
        batch = replay.sample("t", len(replay.table("t")))
        found.append((batch.data, batch.mask))

    signature = hr.Signature.like(frame)
    with hr.Replay(signature, tables) as local, hr.Replay(signature, tables) as served:
        observe(local)
        with hr.Server({"r": served}) as server, hr.Client(server.address) as client:
            observe(client.replay("r"))
    np.testing.assert_equal(*found)


# ---- keys of which the server has not told ---------------------------------------------------------------------------


@pytest.fixture
def served():
    with new_replay() as replay, hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        yield replay, client


def add(writer, t, terminated=False):
    return writer.add(t, 0.0, terminated, False, {"x": np.full(3, t, np.float32)})


def test_a_step_does_not_wait_for_the_server(served, monkeypatch):
    """Only a look at its keys does; and now and then a step for which the server may be short of pages."""
    replay, client = served
    waits, wait = [], OperationStream._wait
    monkeypatch.setattr(OperationStream, "_wait", lambda *args: waits.append(args) or wait(*args))
    with hr.StepWriter(client.replay("r"), rules()[:2]) as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        add(writer, 0)
        before = len(waits)
        made = [add(writer, t) for t in range(1, 100)]
        assert len(waits) - before < 10
        keys = [key for each in made for key in each]
        assert len({*keys}) == len(keys) == writer.statistics().items_written
        writer.flush(10)
        found = {
            int(key)
            for name in TABLES[:2]
            for key in replay.sample(name, len(replay.table(name)), timeout=0).info.keys
        }
        assert found == {*keys}


def test_keys_are_like_a_list(served):
    with hr.StepWriter(served[1].replay("r"), [hr.ItemRule("windows", 1)]) as writer:
        writer.add_first({"x": np.zeros(3, np.float32)})
        first, second, third = (add(writer, t) for t in range(3))
        assert "has not told" in repr(third) or third == [third[0]]
        assert third[0] - first[0] == 2
        earlier = [first[0]]
        assert first + second == [first[0], second[0]] == earlier + second
        assert [*first] == list(first) == first == [first[0]] != second
        assert np.asarray(third).tolist() == third[:] == sorted(third)
        assert first[0] in first
        assert first[0] not in second
        assert repr(first) == f"[{first[0]}]"
        assert writer.reset() == []
        assert not writer.reset()


def test_keys_of_which_a_server_did_not_tell_raise_its_end(served, monkeypatch):
    """And statistics count those that are known."""
    client = served[1]
    writer = hr.StepWriter(client.replay("r"), [hr.ItemRule("windows", 1)])
    writer.add_first({"x": np.zeros(3, np.float32)})
    known = add(writer, 0)
    assert len(known) == 1
    monkeypatch.setattr(OperationStream, "take", lambda *_: None)
    later = add(writer, 1)
    client._session.abandon()
    for _ in range(2):
        with pytest.raises(hr.Closed, match="the client is closed"):
            len(later)
    assert writer.statistics().items_written == 1
    assert known == [known[0]]
    writer._forget_writer()


def state(sequence, made):
    return WriterState(writer=0, sequence=sequence, pending=0, room=0, finals=0, completes=False, made=made)


ACTIONS = st.one_of(
    st.lists(st.integers(1, 3), max_size=3),  # An operation: the number of items of each rule.
    st.just("take"),
    st.integers(1, 5),  # A report of so many operations.
)


@given(st.lists(ACTIONS, max_size=40))
def test_items_of_each_operation_against_a_model(actions):
    """Operations, reports of several of them, and takers come in any order."""
    items, key, sent, told, last = MadeItems(), 0, [], 0, 0
    taken = []
    for action in actions:
        if isinstance(action, list):
            sent.append([])
            for rule, count in enumerate(action):
                sent[-1].append((rule, range(key, key + count)))
                key += count
        elif action == "take":
            expected = [item for made in sent[last:] for item in made]
            last = len(sent)
            taken.append((last, items.take(last, told, pytest.fail), expected))
        elif told < len(sent):
            first, told = told, min(told + action, len(sent))
            made = [
                (number, rule, keys.start, len(keys))
                for number in range(first + 1, told + 1)
                for rule, keys in sent[number - 1]
            ]
            items.add(state(told, made))
        for until, found, expected in taken:
            if until <= told:
                assert list(found) == expected
            else:
                assert isinstance(found, LaterMade)
                assert not found.is_known
                assert found.found == expected[: len(found.found)]


def test_keys_that_a_full_table_held_back_come_with_the_next_call():
    """Also where that call is `extend`, which returns its own keys alone."""
    fifo = hr.selectors.Fifo()
    limiter = hr.rate_limiters.Queue(1)
    table = hr.Table(
        "transitions", sampler=fifo, remover=fifo, max_size=5000, max_times_sampled=1, rate_limiter=limiter
    )
    steps = 1010
    arrays = (
        {"x": np.zeros((1, 3), np.float32)},
        [0],
        [0.0],
        [True],
        [False],
        {"x": np.ones((1, 3), np.float32)},
    )
    with hr.Replay(hr.Signature.like(STEP), [table]) as replay:
        with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
            writer = hr.TransitionWriter(client.replay("r"), "transitions", timeout=0.01)
            writer.add_first({"x": np.zeros(3, np.float32)})
            keys, late = [], 0
            for t in range(steps):
                try:
                    keys.append(add(writer, t, t == steps - 1))
                except hr.DeadlineExceeded:
                    late += 1
            assert 0 < late < 20
            while len(replay.table("transitions")):
                replay.sample("transitions", 1, timeout=0)
            own = writer.extend(*arrays)
            keys.append(writer.reset())
            made = [key for each in keys for key in each]
            assert made == list(range(made[0], made[0] + steps))
            assert own == [made[0] + steps]
            assert writer.statistics().items_written == steps + 1
            replay.sample("transitions", 1, timeout=0)
            writer.close()
