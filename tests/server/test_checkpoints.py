"""Checkpoints of a server: by `stop`, by itself, and for its clients."""

import threading

import pytest

import headrace as hr
from headrace.errors import CheckpointError
from headrace.server.serving.checkpoints import Checkpoints
from headrace.testing import FakeClock


@pytest.fixture
def replay():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 99)]) as replay:
        yield replay


def put(replay, *values):
    with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        for value in values:
            writer.append({"n": value})


def rows(folder):
    with hr.Replay.load(folder) as replay:
        return replay.sample("q", len(replay.table("q")))["n"].tolist()


def test_stopping_saves_each_replay(replay, tmp_path):
    """SV6"""
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as other:
        put(replay, 1, 2)
        put(other, 7)
        queue = hr.BatchQueue({"n": 0}, 2)
        with hr.Server({"r": replay, "o": other, "b": queue}, checkpoint=tmp_path / "new" / "c"):
            assert not list(tmp_path.iterdir())
    folder = tmp_path / "new" / "c"
    assert sorted(each.name for each in folder.iterdir()) == ["o", "r"]
    assert (rows(folder / "r"), rows(folder / "o")) == ([1, 2], [7])


@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_a_client_asks_for_a_checkpoint(replay, tmp_path, where):
    """CL10: of the whole server; no call names a folder."""
    address = {"address": None, "unix": tmp_path / "s"} if where == "unix" else {}
    with hr.Server({"r": replay}, checkpoint=tmp_path / "c", keep=2, **address) as server:
        with hr.Client(server.address) as client:
            put(replay, 1)
            assert rows(client.checkpoint()["r"]) == [1]
            put(replay, 2)
            path = client.replay("r").save()
            assert path.parent == tmp_path / "c" / "r"
            assert rows(path) == [1, 2]
            put(replay, 3)
            assert rows(server.checkpoint()["r"]) == [1, 2, 3]
            assert len(list(path.parent.iterdir())) == 2


def test_a_server_without_a_directory_refuses(replay):
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        for call in (client.checkpoint, client.replay("r").save, server.checkpoint):
            with pytest.raises(CheckpointError, match="checkpoint="):
                call()


def test_names_and_numbers_are_checked(replay, tmp_path):
    for name in ("../r", "a/b", ".", "..", "a\0"):
        with pytest.raises(ValueError, match="folder"):
            hr.Server({name: replay}, checkpoint=tmp_path)
        hr.Server({name: replay})
    with pytest.raises(ValueError, match="keep"):
        hr.Server({"r": replay}, checkpoint=tmp_path, keep=0)


def test_one_failure_does_not_keep_the_others_from_being_saved(replay, tmp_path):
    put(replay, 5)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a").write_text("a file in the way")
    with hr.Replay(replay.signature, [hr.Table.queue("q", 9)]) as other:
        server = hr.Server({"a": other, "r": replay}, checkpoint=tmp_path / "c").start()
        with hr.Client(server.address) as client:
            with pytest.raises(CheckpointError, match=r"'a' to .*FileExistsError"):
                client.checkpoint()
            assert client.ping() > 0
        with pytest.raises(CheckpointError, match="'a'"):
            server.stop()
        server.stop()
    assert rows(tmp_path / "c" / "r") == [5]


def test_saves_are_counted(replay, tmp_path):
    """As statistics, for the live page and Prometheus; a server without a directory has none to count."""

    def counts(record):
        return record.checkpoints, record.failed_checkpoints, record.checkpoint_age, record.checkpoint_seconds

    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        assert counts(client.statistics()) == (None, None, None, None)
    clock = FakeClock()
    saves = Checkpoints({"r": replay}, tmp_path / "c", None, clock)
    saves.save()
    clock.advance(30.0)
    assert saves.counts() == (1, 0, 30.0, 0.0)
    (tmp_path / "c" / "r").rename(tmp_path / "elsewhere")
    (tmp_path / "c" / "r").write_text("a file in the way")
    with pytest.raises(CheckpointError):
        saves.save()
    assert saves.counts() == (1, 1, 30.0, 0.0)


def test_a_client_sees_the_saves_of_its_server(replay, tmp_path):
    with hr.Server({"r": replay}, checkpoint=tmp_path) as server, hr.Client(server.address) as client:
        assert client.statistics().checkpoint_age is None
        client.checkpoint()
        record = client.statistics()
        assert (record.checkpoints, record.failed_checkpoints) == (1, 0)
        assert record.checkpoint_age >= 0
        assert record.checkpoint_seconds > 0
        assert server.statistics().checkpoints == 1


class SlowDisk:
    """Holds saves up until `finish` is set."""

    def __init__(self, monkeypatch):
        self.saves = 0
        self.began, self.finish = threading.Event(), threading.Event()
        save = hr.Replay.save

        def slowly(replay, *arguments, **options):
            self.saves += 1
            self.began.set()
            assert self.finish.wait(20)
            return save(replay, *arguments, **options)

        monkeypatch.setattr(hr.Replay, "save", slowly)


def in_thread(call):
    """Calls in a thread; returns the thread, and the list that gets the result or the exception."""
    found = []

    def run():
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_a_save_holds_up_no_other_call(replay, tmp_path, monkeypatch):
    """SV6, SV7: also not longer than the client's timeout of calls; and calls meanwhile share the next save."""
    disk = SlowDisk(monkeypatch)
    with hr.Server({"r": replay}, checkpoint=tmp_path) as server, hr.Client(server.address) as client:
        with hr.Client(server.address) as hasty:
            hasty._session.timeout = 0.5  # Of calls; a handshake may take longer.
            first, folders = in_thread(hasty.checkpoint)
            assert disk.began.wait(20)
            others = [in_thread(client.checkpoint) for _ in range(3)]
            put(replay, 1)
            assert client.replay("r").sample("q", 1)["n"].tolist() == [1]
            first.join(0.6)
            assert first.is_alive()
            while len(server._running().checkpoints.runs._asked) < 3:
                client.ping()
            disk.finish.set()
            for thread in (first, *(thread for thread, _ in others)):
                thread.join(20)
            assert disk.saves == 2
            assert others[0][1] == others[1][1] == others[2][1] != folders


def test_a_client_that_is_gone_does_not_stop_its_save(replay, tmp_path, monkeypatch):
    disk = SlowDisk(monkeypatch)
    with hr.Server({"r": replay}, checkpoint=tmp_path) as server:
        client = hr.Client(server.address)
        thread, found = in_thread(client.checkpoint)
        assert disk.began.wait(20)
        client.close()
        thread.join(20)
        assert isinstance(found[0], hr.Closed)
        disk.finish.set()
    assert len(list((tmp_path / "r").iterdir())) == 2
