"""Workers that fill replays behind servers: killed ones, with TLS, several, and after a loaded state (CF1, CF2)."""

import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, in_turn
from tests.server.certificates import client_context, server_context
from tests.server.killed_servers import KilledServer

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
ENDLESS = 10**9


def endless(worker):
    """Makes the two environments of a worker."""
    return in_turn(
        [lambda copy=copy: CounterEnv(ENDLESS, copy=copy) for copy in (2 * worker, 2 * worker + 1)]
    )


def once(name="t"):
    """A table that gives each item once, the oldest first."""
    fifo = hr.selectors.Fifo()
    return hr.Table(name, sampler=fifo, remover=fifo, max_times_sampled=1, max_size=100_000)


def taken(replay, count, table="t"):
    return replay.sample(table, count, views=hr.views.transition(), timeout=40).data


def rest_of(*replays, table="t"):
    parts = [taken(each, count, table) for each in replays if (count := len(each.table(table)))]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_transitions(data, lanes, begin=0):
    """Checks that each transition of these lanes is there once, from step `begin` on, and returns their numbers."""
    seen, counts = data["observation"], []
    for lane in range(lanes):
        steps = np.sort(seen[seen[:, 0] == lane][:, 2])
        np.testing.assert_array_equal(steps, np.arange(len(steps)) + begin)
        counts.append(len(steps))
    np.testing.assert_array_equal(data["next_observation"] - seen, np.tile([0, 0, 1], (len(seen), 1)))
    return counts


def test_a_server_that_is_killed_and_comes_back_loses_and_doubles_no_row(tmp_path):
    # AK2: the collector goes on as soon as the server is there again.
    with (
        KilledServer(tmp_path, signature=SIGNATURE) as server,
        hr.Client(server.address, timeout=30) as writer,
        hr.Client(server.address, timeout=30) as reader,
    ):
        table = [hr.ItemRule("u", length=1, lookahead=1)]
        replay, parts = reader.replay("r"), []
        with hr.AsyncCollector(
            endless(0), frames_per_batch=20, num_envs=2, replay_buffer=writer.replay("r"), items=table
        ) as collector:
            collector.start()
            for _ in range(3):
                parts.append(taken(replay, 50, "u"))
                server.kill()
                server.start()
                replay.statistics()  # Connects again, which a sample does not.
            parts.append(taken(replay, 50, "u"))
            collector.async_shutdown()
            frames = collector.statistics().frames
        parts.append(rest_of(replay, table="u"))
        data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert sum(check_transitions(data, 2)) == frames


def test_over_tls():
    with (
        hr.Replay(SIGNATURE, [once()]) as replay,
        hr.Server({"r": replay}, tls=server_context(), token="secret") as server,
        hr.Client(server.address, tls=client_context(), token="secret") as client,
        hr.MultiCollector(
            [endless(0), endless(1)],
            frames_per_batch=20,
            num_envs=2,
            sync=True,
            replay_buffer=client.replay("r"),
        ) as collector,
    ):
        for _ in range(3):
            collector.next(timeout=40)
        collector.shutdown()
        assert check_transitions(rest_of(replay), 4) == [15] * 4


def test_into_shards():
    # CY4: each lane is in one shard, those of the second worker beside those of the first.
    replays = [hr.Replay(SIGNATURE, [once()]) for _ in range(2)]
    servers = [hr.Server({"r": replay}).start() for replay in replays]
    whole = hr.server.shards([server.address for server in servers], "r")
    try:
        with hr.MultiCollector(
            [endless(0), endless(1)], frames_per_batch=20, num_envs=2, sync=True, replay_buffer=whole
        ) as collector:
            for _ in range(3):
                collector.next(timeout=40)
        parts = [rest_of(replay) for replay in replays]
        assert [len(np.unique(part["observation"][:, 0])) for part in parts] == [2, 2]
        data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert check_transitions(data, 4) == [15] * 4
    finally:
        whole.close()
        for server, replay in zip(servers, replays, strict=True):
            server.stop()
            replay.close()


@pytest.mark.parametrize("sync", [True, False])
def test_after_a_loaded_state(sync):
    # CQ3: the second collector stores the rows that follow the state, in which complete batches wait. Asynchronous
    # workers of the first one go on after the state, so these rows are in the replay twice.
    def collector(replay):
        return hr.MultiCollector(
            [endless(0)], frames_per_batch=20, num_envs=2, replay_buffer=replay, sync=sync
        )

    with hr.Replay(SIGNATURE, [once()]) as replay, hr.Server({"r": replay}) as server:
        with hr.Client(server.address) as client:
            with collector(client.replay("r")) as first:
                first.next(timeout=40)
                state = first.state_dict()
            before = check_transitions(rest_of(replay), 2)
            with collector(client.replay("r")) as second:
                second.load_state_dict(state)
                batches = [second.next(timeout=40) for _ in range(3)]
            rows = rest_of(replay)
    begin = int(rows["observation"][:, 2].min())
    (after, _) = check_transitions(rows, 2, begin)
    assert begin == before[0] if sync else 10 <= begin <= before[0]
    steps = np.concatenate([batch["observation"][0, :, 2] for batch in batches])
    np.testing.assert_array_equal(steps, np.arange(10, 40))
    assert begin + after >= 40
