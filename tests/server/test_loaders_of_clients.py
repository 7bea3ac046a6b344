"""Loaders over a client's replay, whose requests are on their way several at a time (loaders LD1, LS3 to LS5, LT1)."""

import gc
import pickle
import time

import numpy as np
import pytest

import headrace as hr
from headrace.server.client.calls import ReplayCalls
from headrace.server.messages.answers import Done
from headrace.server.messages.requests import Sample
from headrace.server.serving import samples
from headrace.testing import in_forked_child
from tests.server.certificates import client_context, server_context

SECONDS = 20.0
VIEWS = {"n": hr.View("n"), "next": hr.View("n", shift=1)}


def filled(table, count=100, columns=1, seed=0):
    signature = hr.Signature.like({"n": 0, "x": np.zeros(columns, np.float32)})
    replay = hr.Replay(signature, [table], seed=seed)
    with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)], max_pending=10_000) as writer:
        append(writer, 0, count, columns)
    return replay


def append(writer, first, count, columns=1):
    for n in range(first, first + count):
        writer.append({"n": n, "x": np.full(columns, n, np.float32)})


def uniform():
    return hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)


@pytest.fixture
def served():
    """Serves a replay; returns the client's."""
    opened = []

    def serve(replay, **where):
        server = hr.Server({"r": replay}, **where).start()
        client = hr.Client(server.address)
        opened.extend([client, server, replay])
        return client.replay("r")

    yield serve
    for each in opened:
        (each.stop if isinstance(each, hr.Server) else each.close)()


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("place", ["tcp", "unix"])
def test_batches_are_those_of_the_same_replay_in_process(served, prefetch, place, tmp_path):
    """LS3: the order of the draws, for every prefetch."""
    where = {"address": None, "unix": tmp_path / "s"} if place == "unix" else {}
    remote = served(filled(uniform(), seed=3), **where)
    with (
        filled(uniform(), seed=3) as here,
        hr.loaders.Loader(remote, "t", 4, views=VIEWS, prefetch=prefetch) as loader,
    ):
        for _ in range(30):
            found, expected = next(loader), here.sample("t", 4, views=VIEWS)
            for name in VIEWS:
                np.testing.assert_array_equal(found[name], expected[name])
            np.testing.assert_array_equal(found.info.keys, expected.info.keys)
            found["n"][:] = -1  # The learner's own (LD6).


@pytest.mark.parametrize("prefetch", [1, 3, 8])
def test_never_more_than_prefetch_batches_are_drawn_ahead(served, prefetch):
    """LS4: after n deliveries, n + prefetch."""
    replay = filled(uniform())
    remote = served(replay)
    with hr.loaders.Loader(remote, "t", 2, prefetch=prefetch) as loader:
        for delivered in range(1, 20):
            next(loader)
            drawn = replay.statistics().tables["t"].samples // 2
            assert delivered <= drawn <= delivered + prefetch
        deadline = time.monotonic() + SECONDS
        while (drawn := replay.statistics().tables["t"].samples // 2) < delivered + prefetch:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert drawn == delivered + prefetch


def test_a_few_requests_ask_for_many_small_batches(served, monkeypatch):
    """And they come in one message."""
    requests, begin = [], ReplayCalls.begin_samples

    def counted(calls, link, request):
        requests.append(request.count)
        return begin(calls, link, request)

    monkeypatch.setattr(ReplayCalls, "begin_samples", counted)
    remote = served(filled(uniform()))
    with hr.loaders.Loader(remote, "t", 2, prefetch=16) as loader:
        for _ in range(160):
            next(loader)
    assert 160 <= sum(requests) <= 177
    assert len(requests) < 60


@pytest.mark.parametrize("prefetch", [0, 2, 7])
def test_a_state_has_every_batch_that_was_drawn(served, prefetch):
    """LT1, LT2: of a queue, none is lost and none comes twice."""
    replay = filled(hr.Table.queue("t", 1000), 60)
    remote = served(replay)
    numbers = []
    with hr.loaders.Loader(remote, "t", 1, prefetch=prefetch) as loader:
        for _ in range(20):
            numbers.append(int(next(loader)["n"].item()))
            if len(numbers) == 11:
                state = loader.state_dict()
                drawn = replay.statistics().tables["t"].samples
                assert drawn == 11 + len(state["batches"]) <= 11 + prefetch
        last = loader.state_dict()
    assert numbers == list(range(20))
    with hr.loaders.Loader(remote, "t", 1, prefetch=prefetch) as again:
        again.load_state_dict(last)
        numbers += [int(next(again)["n"].item()) for _ in range(39)]
    assert numbers == list(range(59))


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_a_table_that_has_nothing_says_why_and_goes_on(served, prefetch, monkeypatch):
    """LW2: nothing was taken, and the next call waits again."""
    # For a busy machine, whose answers take longer than the second that they may be late.
    monkeypatch.setattr("headrace.loaders.requests._GRACE", 40.0)
    for module in ("draws_ahead", "sampling"):
        monkeypatch.setattr(f"headrace.server.client.{module}.NETWORK_SECONDS", 40.0)
    replay = filled(hr.Table.queue("t", 1000), 0)
    remote = served(replay)
    with hr.loaders.Loader(remote, "t", 1, prefetch=prefetch) as loader:
        for first in range(3):
            loader._timeout = 0.05
            with pytest.raises(hr.DeadlineExceeded, match="table 't'"):
                next(loader)
            with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
                append(writer, first, 1)
            loader._timeout = SECONDS  # A request that was begun before may be refused late.
            assert next(loader)["n"].item() == first
        assert replay.statistics().tables["t"].samples == 3


def test_requests_that_were_refused_long_ago_do_not_count(served):
    """LW2: what came while the learner was away is there at once."""
    replay = filled(hr.Table.queue("t", 1000), 2)
    draws = served(replay).draws_ahead("t", 1)
    assert draws.draw(0.0, 3)["n"].item() == 0
    for first in range(1, 4):
        draws._ask(3, 0.0)
        for link, reply in draws._flying:
            assert link.is_answered(reply, time.monotonic() + SECONDS)
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            append(writer, first, 1)
        assert draws.draw(0.0, 3)["n"].item() == first
    with pytest.raises(hr.DeadlineExceeded):
        draws.draw(0.0, 3)


def test_batches_drawn_before_the_end_are_delivered(served):
    """LW4."""
    replay = filled(uniform())
    remote = served(replay)
    loader = hr.loaders.Loader(remote, "t", 2, prefetch=4)
    next(loader)
    deadline = time.monotonic() + SECONDS
    while replay.statistics().tables["t"].samples < 10:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    replay.close()
    assert len(list(loader)) == 4
    loader.close()


def test_a_lost_connection_is_one_error_and_the_loader_goes_on(served):
    """LW6: all requests on their way are lost with it."""
    remote = served(filled(uniform()))
    with hr.loaders.Loader(remote, "t", 2, prefetch=0) as loader:
        next(loader)
        draws = loader._stream._draws
        draws._ask(3, 1.0)
        draws._flying[0].link.fail(hr.Disconnected("cut"))
        with pytest.raises(hr.Disconnected):
            next(loader)
        assert len(next(loader)["n"]) == 2


class Wrapper:
    def __init__(self, replay):
        self._replay, self.calls = replay, 0

    def __getattr__(self, name):
        return getattr(self._replay, name)

    def sample(self, *args, **kwargs):
        self.calls += 1
        return self._replay.sample(*args, **kwargs)


def test_a_wrapper_is_asked_for_each_batch(served, monkeypatch):
    """LD1: also one that passes everything else on, and a method that was replaced."""
    remote = served(filled(uniform()))
    wrapper = Wrapper(remote)
    with hr.loaders.Loader(wrapper, "t", 2, prefetch=0) as loader:
        next(loader)
    assert wrapper.calls == 1
    monkeypatch.setattr(remote, "sample", wrapper.sample)
    wrapper._replay = filled(uniform())
    with wrapper._replay, hr.loaders.Loader(remote, "t", 2, prefetch=0) as loader:
        next(loader)
    assert wrapper.calls == 2


# ---- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["token", "tls"])
def test_a_forked_worker_reads_over_a_connection_of_its_own(secret):
    """LP2: an item of a queue reaches one worker, once; with the token and certificates of the client."""
    replay = filled(hr.Table.queue("t", 1000), 31)
    token, settings, trust = (
        ("secret", {}, {})
        if secret == "token"
        else (None, {"tls": server_context()}, {"tls": client_context()})
    )
    with (
        replay,
        hr.Server({"r": replay}, token=token, **settings) as server,
        hr.Client(server.address, token=token, **trust) as client,
    ):
        loader = hr.loaders.Loader(client.replay("r"), "t", 1, prefetch=2)
        numbers = [int(next(loader)["n"].item()) for _ in range(3)]

        def work():
            with loader:
                return [int(next(loader)["n"].item()) for _ in range(5)]

        numbers += in_forked_child(work) + in_forked_child(work)
        numbers += [int(next(loader)["n"].item()) for _ in range(3)]
        left = [int(sample["n"].item()) for sample in loader.state_dict()["batches"]]
        loader.close()
        assert len({*numbers, *left}) == len(numbers) + len(left)
        assert server.statistics().connections_total == 3


def test_a_replay_that_was_pickled_has_a_connection_that_ends_with_it(served):
    remote = served(filled(uniform()))
    copy = pickle.loads(pickle.dumps(remote))
    assert copy._calls._client is not remote._calls._client
    assert copy.signature == remote.signature
    assert len(copy.sample("t", 4)["n"]) == 4
    session = copy._calls._client
    copy.close()
    assert len(remote.sample("t", 4)["n"]) == 4
    del copy
    gc.collect()
    with pytest.raises(hr.Closed, match="the client is closed"):
        session.link()


def test_a_replay_that_is_not_served_any_more_cannot_be_opened_again(served):
    remote = served(filled(uniform()))
    remote._name = "other"
    with pytest.raises(KeyError, match="serves no 'other'; there are 'r'"):
        remote.reopened()


# ---- requests for several batches ------------------------------------------------------------------------------------


def asked(remote, count, batch_size=2):
    """Returns the replies to a request for so many batches."""
    link = remote._sampling.calls.link(SECONDS)
    replies = link.begin_samples(
        Sample(replay="r", table="t", batch_size=batch_size, timeout=0.0, count=count)
    )
    for reply in replies:
        assert link.is_answered(reply, time.monotonic() + SECONDS)
    return replies


def test_after_a_large_batch_the_rest_is_not_drawn(served):
    replay = filled(uniform(), 10, columns=100_000)
    remote = served(replay)
    first, *others = asked(remote, 3)
    assert first.answer.arrays
    assert all(isinstance(reply.answer, Done) for reply in others)
    assert replay.statistics().tables["t"].samples == 2
    with hr.loaders.Loader(remote, "t", 2, prefetch=5) as loader:
        for _ in range(8):
            batch = next(loader)
            assert (batch["x"] == batch["n"][:, None]).all()


def test_a_message_that_is_full_takes_no_further_batch(served, monkeypatch):
    monkeypatch.setattr(samples, "_ENOUGH_NBYTES", 150)
    replay = filled(uniform())
    replies = asked(served(replay), 5)
    drawn = [not isinstance(reply.answer, Done) for reply in replies]
    assert drawn == [True, True, False, False, False]
    assert replay.statistics().tables["t"].samples == 4


def test_a_request_that_can_be_served_in_part(served):
    limiter = hr.rate_limiters.SampleToInsertRatio(1.0, min_size_to_sample=1, error_buffer=1)
    table = hr.Table(
        "t",
        sampler=hr.selectors.Uniform(),
        remover=hr.selectors.Fifo(),
        max_size=1000,
        rate_limiter=limiter,
    )
    replay = filled(table, 0)
    remote = served(replay)
    writer = replay.writer(items=[hr.ItemRule("t", 1)])
    append(writer, 0, 2)
    possible = sum(replay.can_sample("t", n) for n in range(1, 6))
    replies = asked(remote, 5, batch_size=1)
    assert [reply.error is None for reply in replies] == [True] * possible + [False] * (5 - possible)
    assert 0 < possible < 5
    assert all(isinstance(reply.error, hr.DeadlineExceeded) for reply in replies[possible:])
    assert replay.statistics().tables["t"].samples == possible
    writer.close()


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_wrong_number_of_batches_is_refused(served, count):
    remote = served(filled(uniform()))
    link = remote._sampling.calls.link(SECONDS)
    reply = link.begin(Sample(replay="r", table="t", batch_size=2, timeout=0.0, count=count))
    with pytest.raises(ValueError, match="count"):
        link.wait(reply, SECONDS)
    assert len(remote.sample("t", 2)["n"]) == 2


def test_every_batch_of_a_request_that_fails_is_answered(served):
    """CL7: the end of a loader waited for the others for ever, such as at a new server without the table."""
    remote = served(filled(uniform()))
    link = remote._sampling.calls.link(SECONDS)
    replies = link.begin_samples(Sample(replay="r", table="gone", batch_size=2, timeout=0.0, count=3))
    assert all(link.is_answered(reply, time.monotonic() + SECONDS) for reply in replies)
    first, *others = replies
    assert isinstance(first.error, KeyError)
    assert all(isinstance(reply.answer, Done) for reply in others)
