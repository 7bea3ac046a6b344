"""torch's DataLoader and worker processes (loaders LP1 to LP7)."""

import contextlib
import multiprocessing
import os
import pickle
import threading
from multiprocessing.managers import BaseManager

import pytest

import headrace as hr
from headrace.loaders import Loader, dealing
from headrace.testing import in_forked_child

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]

IN_PROCESS = r"frozen.*num_workers=0.*snapshot=True"


@contextlib.contextmanager
def workers(loader, count, **options):
    """An iterator over the loader in so many forked workers, which are gone afterwards."""
    iterator = iter(
        DataLoader(loader, batch_size=None, num_workers=count, multiprocessing_context="fork", **options)
    )
    try:
        yield iterator
    finally:
        iterator._shutdown_workers()


def firsts(batches, count):
    return [next(batches).data["x"].tolist() for _ in range(count)]


def test_is_a_dataset_of_torch(make_replay):
    """LP1."""
    with Loader(make_replay(), "t", 3, to="torch") as loader:
        assert isinstance(loader, Loader)
        assert isinstance(loader, IterableDataset)
        batches = iter(DataLoader(loader, batch_size=None))
        assert firsts(batches, 2) == [[0, 1, 2], [3, 4, 5]]
        batch = next(batches)
        assert type(batch) is type(next(loader))
        assert batch.info.keys.tolist() == [7, 8, 9]
        with pytest.raises(TypeError, match="len"):
            len(loader)
    with Loader(make_replay(), "t", 3) as loader:
        assert not isinstance(loader, IterableDataset)


def test_the_dataloader_ends_with_the_stream(make_replay):
    """LP1, LW4."""
    replay = make_replay()
    with Loader(replay, "t", 3, to="torch", prefetch=0) as loader:
        seen = 0
        for _ in DataLoader(loader, batch_size=None):
            seen += 1
            if seen == 3:
                replay.close()
    assert seen == 3


def test_batches_of_workers_are_whole(make_replay):
    """LP1, LD7: through the queue of a DataLoader."""
    with Loader(make_replay(), "t", 100, to="torch", snapshot=True) as loader, workers(loader, 1) as batches:
        batch = next(batches)
        assert batch.data["x"].tolist() == list(range(100))
        assert (batch.data["image"] == batch.data["x"][:, None] % 256).all()
        assert batch.info.keys.tolist() == list(range(1, 101))
        assert batch.mask is None


# ---- LP2: a replay that is reached over a connection -------------------------------------------------------


class Manager(BaseManager):
    pass


@pytest.fixture
def remote(make_replay):
    """Something that is reached over a connection, opens another one in every process, and has `sample`; its replay."""
    replay = make_replay()
    key = multiprocessing.current_process().authkey
    Manager.register("replay", callable=lambda: replay, exposed=["sample"])
    server = Manager(("127.0.0.1", 0), key).get_server()
    server.stop_event = threading.Event()
    thread = threading.Thread(target=serve, args=(server,))
    thread.start()
    client = Manager(server.address, key)
    client.connect()
    yield client.replay(), replay
    server.stop_event.set()
    thread.join()


def serve(server):
    with contextlib.suppress(SystemExit):
        server.serve_forever()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_worker_has_a_connection(remote, method):
    """LP2: it reads live, and an item of the queue reaches one worker, once."""
    proxy, replay = remote
    with Loader(proxy, "t", 10, to="torch", prefetch=1) as loader:
        data = DataLoader(
            loader, batch_size=None, num_workers=2, multiprocessing_context=method, prefetch_factor=1
        )
        batches = iter(data)
        try:
            seen = [x for _ in range(50) for x in next(batches).data["x"].tolist()]
            samples = replay.statistics().tables["t"].samples
            # The stream ends in order. A spawned worker that is stopped while it hands a batch over sometimes aborts,
            # whatever its dataset: torch does that in a thread which the end of the interpreter tears down.
            replay.close()
            seen += [x for batch in batches for x in batch.data["x"].tolist()]
        finally:
            batches._shutdown_workers()
    assert len(seen) == len(set(seen)) >= 500
    assert samples >= 500


# ---- LP3, LP7: a replay in this process --------------------------------------------------------------------


def test_a_frozen_copy_is_refused(make_replay, watched):
    """LP3: also behind a wrapper."""
    for replay in (make_replay(), watched(make_replay())):
        with Loader(replay, "t", 2, to="torch") as loader:
            next(loader)
            with workers(loader, 1) as batches:
                with pytest.raises(RuntimeError, match=IN_PROCESS):
                    next(batches)
            assert firsts(loader, 1) == [[2, 3]]


def test_any_child_is_refused(make_replay):
    """LP3: it need not be torch's."""
    with Loader(make_replay(), "t", 2) as loader:

        def words():
            with pytest.raises(RuntimeError, match=IN_PROCESS):
                next(loader)
            loader.close()
            return "refused"

        assert in_forked_child(words) == "refused"


@pytest.mark.parametrize("options", [{}, {"snapshot": True}])
def test_pickling_is_refused(make_replay, watched, options):
    """LP7."""
    for replay in (make_replay(), watched(make_replay())):
        with Loader(replay, "t", 2, to="torch", **options) as loader:
            with pytest.raises(TypeError, match=IN_PROCESS):
                pickle.dumps(loader)


def test_pickling_takes_the_arguments_along(remote):
    """LP2, spawn."""
    proxy, _ = remote
    with Loader(proxy, "t", 2, to="torch", prefetch=0, timeout=30.0, views={"y": hr.View("x")}) as loader:
        next(loader)
        with pickle.loads(pickle.dumps(loader)) as again:
            assert type(again) is type(loader)
            for name, value in loader._options.items():
                assert again._options[name] == value or name == "clock"
            assert next(again).data["y"].tolist() == [2, 3]


# ---- LP4, LP5: dealing a snapshot out ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_workers_deliver_the_one_stream(make_replay, sampler, count):
    """LP4: exactly the batches of num_workers=0, in the same order, for every sampler."""
    with Loader(make_replay(sampler), "t", 7, prefetch=0) as loader:
        expected = firsts(loader, 12)
    with Loader(make_replay(sampler), "t", 7, to="torch", snapshot=True) as loader:
        with workers(loader, count) as batches:
            assert firsts(batches, 12) == expected
        # The parent's own replay is untouched.
        assert firsts(loader, 12) == expected


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_after_what_the_parent_was_delivered(make_replay, prefetch):
    """LP5: what it had drawn ahead comes first."""
    with Loader(make_replay("uniform"), "t", 7, prefetch=0) as loader:
        expected = firsts(loader, 15)
    with Loader(make_replay("uniform"), "t", 7, to="torch", snapshot=True, prefetch=prefetch) as loader:
        assert firsts(loader, 4) == expected[:4]
        with workers(loader, 2) as batches:
            assert firsts(batches, 8) == expected[4:12]
        assert firsts(loader, 11) == expected[4:]


def test_a_restored_stream_is_dealt_out(make_replay, watched):
    """LP5, LT3."""
    wrapper = watched(make_replay())
    with Loader(wrapper, "t", 7, prefetch=3) as loader:
        assert firsts(loader, 1) == [list(range(7))]
        wrapper.wait_for_draws(4)
        state = loader.state_dict()
    with Loader(wrapper, "t", 7, to="torch", snapshot=True) as loader:
        loader.load_state_dict(state)
        with workers(loader, 2) as batches:
            assert firsts(batches, 6) == [list(range(7 * n, 7 * n + 7)) for n in range(1, 7)]


def test_through_a_wrapper(scripted, numbers):
    """LP4, LD1: the loader knows of no more than `sample`."""
    with Loader(scripted(), "t", 2, to="torch", snapshot=True) as loader, workers(loader, 3) as batches:
        assert [int(next(batches).data["n"][0]) for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]


# ---- LP6: forks while threads are at work ------------------------------------------------------------------


def test_a_fork_waits_for_the_draw_in_progress(make_replay):
    """LP6, LP5: it would be missing in the child otherwise."""
    forking, begun = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, replay):
            self.replay = replay

        def sample(self, *args, **kwargs):
            batch = self.replay.sample(*args, **kwargs)
            if batch.data["x"][0] == 7:
                begun.set()
                assert forking.wait(20)
            return batch

    with Loader(Slow(make_replay()), "t", 7, snapshot=True, prefetch=2) as loader:
        stream = loader._stream
        hold = stream.hold

        def told(timeout):
            forking.set()
            return hold(timeout)

        stream.hold = told
        assert firsts(loader, 1) == [list(range(7))]
        assert begun.wait(20)
        assert in_forked_child(lambda: firsts(loader, 3)) == [
            list(range(7 * n, 7 * n + 7)) for n in (1, 2, 3)
        ]
        assert firsts(loader, 3) == [list(range(7 * n, 7 * n + 7)) for n in (1, 2, 3)]


def test_a_draw_that_does_not_return_is_told(scripted, numbers, monkeypatch):
    """LP6: a fork is not held up for ever, and the child does not guess."""
    monkeypatch.setattr(dealing, "_LONGEST_DRAW", 0.0)
    blocked = threading.Event()
    replay = scripted(script={1: blocked.wait})
    with Loader(replay, "t", 1, snapshot=True, prefetch=1) as loader:
        thread = threading.Thread(target=lambda: next(loader))
        thread.start()
        replay.wait_for_draws(1)

        def words():
            # In a child of the child, too.
            with pytest.raises(RuntimeError, match="its copy of the stream is not whole"):
                in_forked_child(lambda: next(loader))
            with pytest.raises(RuntimeError, match="its copy of the stream is not whole"):
                next(loader)

        in_forked_child(words)
        blocked.set()
        thread.join()
        assert numbers(loader, 1) == [2]


@pytest.mark.parametrize("snapshot", [False, True])
def test_forking_again_and_again(make_replay, snapshot):
    """LP6: while the thread draws and the learner takes."""
    with Loader(make_replay("uniform"), "t", 300, snapshot=snapshot, prefetch=3) as loader:
        stop = threading.Event()

        def learn():
            while not stop.is_set():
                next(loader)

        def use():
            if snapshot:
                return [len(each) for each in firsts(loader, 3)]
            with pytest.raises(RuntimeError, match=IN_PROCESS):
                next(loader)
            return [300] * 3

        thread = threading.Thread(target=learn)
        thread.start()
        try:
            for _ in range(20):
                assert in_forked_child(use) == [300] * 3
        finally:
            stop.set()
            thread.join()


def test_an_error_that_waits_is_the_parents(scripted, numbers):
    """LP5: the child goes on after it."""
    replay = scripted(script={2: OSError("second")})
    with Loader(replay, "t", 1, snapshot=True, prefetch=1) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(2)
        assert in_forked_child(lambda: numbers(loader, 2)) == [3, 4]
        with pytest.raises(OSError, match="second"):
            next(loader)


def test_a_closed_loader_is_closed_in_the_child(make_replay):
    for snapshot in (False, True):
        loader = Loader(make_replay(), "t", 1, snapshot=snapshot)
        next(loader)
        loader.close()

        def words(loader=loader):
            with pytest.raises(hr.Closed, match="the loader is closed"):
                iter(loader)
            return next(loader, "ended")

        assert in_forked_child(words) == "ended"


def test_no_process_is_left():
    assert multiprocessing.active_children() == []
    assert os.getpid() == multiprocessing.current_process().pid
