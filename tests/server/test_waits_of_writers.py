"""server AK6, SS2: what an error tells whose call waited in vain for the server of a writer."""

from unittest import mock

import numpy as np
import pytest

import headrace as hr
from headrace.server.serving.writers.row_writer import ServedRowWriter
from tests.server.remote_writers import RemotelyWritten
from tests.server.test_stopping import until

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
RULES = [hr.ItemRule("t", length=1)]


def table():
    fifo = hr.selectors.Fifo()
    return hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000)


def test_an_error_of_a_silent_server_counts_what_is_not_acknowledged():
    with RemotelyWritten(SIGNATURE, [table()]) as replay:
        writer = replay.remote.writer(items=RULES)
        writer.append({"n": 0})
        writer.flush()
        replay.channel_of_writers().is_dropped = lambda _: True
        for n in range(3):
            writer.append({"n": n})
        with pytest.raises(hr.DeadlineExceeded, match="did not answer") as caught:
            writer.flush(timeout=0)
        assert caught.value.pending == 3
        replay.channel_of_writers().shutdown()
        writer.close()
        assert len(replay.local.table("t")) == 4


def test_an_error_of_a_full_server_says_so(monkeypatch):
    local = hr.Replay(SIGNATURE, [table()])
    server = hr.Server({"replay": local}).start()
    address = server.address
    with local, hr.Client(address) as client:
        writer = client.replay("replay").writer(items=RULES)
        writer.append({"n": 0})
        writer.flush()
        server.stop()
        for n in range(3):
            writer.append({"n": n})
        # The pages that the writer had are taken by others meanwhile.
        monkeypatch.setattr(ServedRowWriter, "append_many", mock.Mock(side_effect=hr.StoreFull("full")))
        with hr.Server({"replay": local}, address=address):
            until(lambda: writer._rows._stream.waits_for_page)
            # Other calls of the client go on: they may be those that let items leave.
            assert client.replay("replay").sample("t", 1, timeout=0)["n"] == 0
            with pytest.raises(hr.DeadlineExceeded, match="'replay' on tcp.* the store is full") as caught:
                writer.flush(timeout=0)
            assert caught.value.pending == 3
            monkeypatch.undo()
            writer.close()
            assert len(local.table("t")) == 4
