"""What a checkpoint brings back (replay Q2, Q3, Q8, Q9, K1)."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.public import core_of
from headrace.replay.shards.replay import ShardedReplay
from headrace.tables.description.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from headrace.tables.description.table_json import table_from_json, table_to_json


def test_q8_the_next_thousand_draws_are_equal(replay, tmp_path, tools):
    path = replay.save(tmp_path)
    with hr.Replay.load(path) as loaded:
        assert tools.counts(loaded) == tools.counts(replay)
        assert loaded.signature == replay.signature
        tools.assert_same_draws(replay, loaded, 1000 // len(tools.NAMES))
        assert tools.counts(loaded) == tools.counts(replay)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), lanes=st.sampled_from([1, 2, 5]), calls=st.integers(0, 120))
def test_q8_both_go_on_alike_whatever_was_before(tmp_path, tools, seed, lanes, calls):
    """After `load` the same calls give the same batches: inserts with their removals, updates, deletes, resets too."""
    with hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), capacity=900, seed=seed) as replay:
        past = tools.Past(replay, seed, lanes)
        past.go(calls)
        with hr.Replay.load(replay.save(tmp_path / str(seed))) as loaded:
            past.writer.close()
            futures = [tools.Past(each, seed + 1, lanes) for each in (replay, loaded)]
            for _ in range(40):
                for future in futures:
                    future.go(1)
                for name in tools.NAMES:
                    one, other = (tools.draw(each, name, 2) for each in (replay, loaded))
                    assert (one is None) == (other is None)
                    if one is not None:
                        tools.assert_same_data(one, other)
                        np.testing.assert_array_equal(one.info.probabilities, other.info.probabilities)
                        np.testing.assert_array_equal(one.info.times_sampled, other.info.times_sampled)
            assert tools.counts(loaded) == tools.counts(replay)
            for future in futures:
                future.writer.close()


def test_q8_a_large_insert_uses_random_numbers_up_alike(tmp_path):
    """More items go in and out at once than the scratch arrays of a table have room for."""
    table = hr.Table("t", sampler=Uniform(), remover=Uniform(), max_size=2000)
    signature = hr.Signature.like({"x": 0})
    with hr.Replay(signature, [table], seed=0) as replay:
        with replay.writer(lanes=1500, items=[hr.ItemRule("t", 1)]) as writer:
            for number in range(3):
                writer.append({"x": np.full(1500, number)})
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            for each in (replay, loaded):
                with each.writer(lanes=1500, items=[hr.ItemRule("t", 1)]) as writer:
                    writer.append({"x": np.arange(1500)})
            np.testing.assert_array_equal(
                replay.sample("t", 500).data["x"], loaded.sample("t", 500).data["x"]
            )


def test_q8_views_see_final_rows_episodes_and_versions(tmp_path):
    step = {
        "observation": np.zeros(2, np.float32),
        "action": 0,
        "reward": np.float32(0),
        "terminated": False,
        "truncated": False,
    }
    signature = hr.Signature.like(step)
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=200)
    views = {
        **hr.views.transition(n_step=2, frame_stack=2),
        "id": hr.View("episode_id"),
        "version": hr.View("policy_version"),
        "t": hr.View("t"),
    }
    with hr.Replay(signature, [table], seed=0) as replay:
        with replay.writer(lanes=3, items=[hr.ItemRule("t", 1, lookahead=2)]) as writer:
            for t in range(50):
                writer.policy_version = t // 4
                row = {name: np.repeat(np.asarray(value)[None], 3, axis=0) for name, value in step.items()}
                row["observation"] = np.full((3, 2), t, np.float32) + np.arange(3)[:, None]
                row["reward"] = np.full(3, t, np.float32)
                writer.append(row)
                if t % 9 == 8:
                    writer.end_episode(np.full(2, -t, np.float32), lane=t % 3)
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            for _ in range(20):
                one, other = (each.sample("t", 64, views=views) for each in (replay, loaded))
                for name, values in one.data.items():
                    np.testing.assert_array_equal(values, other.data[name], err_msg=name)
                assert (one.data["version"] > 0).any()


def test_q8_what_final_rows_are_given_is_known_again(tmp_path, tools):
    signature = hr.Signature.like({"observation": 0.0, "reward": 0.0})
    with hr.Replay(signature, [hr.Table.queue("q", 9)]) as replay:
        with replay.writer() as writer:
            writer.append({"observation": 1.0, "reward": 1.0})
            writer.end_episode({"observation": 2.0})
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            core_of(loaded).declarations.declare_final_columns(["observation"])
            with pytest.raises(hr.SpecError, match="as in earlier final rows"):
                core_of(loaded).declarations.declare_final_columns(["reward"])


def test_q8_pending_inserts_and_writers_are_not_restored(tmp_path):
    with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 2)]) as replay:
        writer = replay.writer(items=[hr.ItemRule("q", 1)])
        for x in range(5):
            writer.append({"x": x})
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            assert loaded.statistics().tables["q"].pending_inserts == 0
            assert loaded.sample("q", 2).data["x"].tolist() == [0, 1]
            assert len(loaded.table("q")) == 0
            assert loaded.statistics().store.pages == 0


@pytest.mark.parametrize("first", [1, 1 << 60])
def test_k1_keys_are_not_used_again_after_load_nor_those_used_after_the_save(tmp_path, first):
    """Also where the keys are ahead of the clock, as those of replays that an earlier version has loaded."""

    def new_key(replay):
        with replay.writer() as writer:
            writer.append({"x": 0})
            return writer.create_item("t", 1)

    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=3)
    used = []
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        with core_of(replay).lock:
            core_of(replay).keys.skip_to(first)
        used += [new_key(replay) for _ in range(5)]
        path = replay.save(tmp_path)
        used += [new_key(replay) for _ in range(5)]
    for _ in range(3):
        with hr.Replay.load(path) as loaded:
            used += [new_key(loaded) for _ in range(5)]
            # A late update for an item of another life is applied to nobody.
            assert loaded.update_priorities("t", used[5:10], np.ones(5)) == 0
    assert len(set(used)) == len(used)


def test_keys_of_many_loaded_shards_fit_into_64_bits(tmp_path):
    """Replay K1: key k of shard s of n is `k * n + s`; an update must not reach another item, or none."""
    shards = 40
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        path = replay.save(tmp_path)
    opened = [hr.Replay.load(path) for _ in range(shards)]
    with ShardedReplay([lambda each=each: each for each in opened], seed=0) as whole:
        with whole.writer(lanes=shards, items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": np.arange(shards)})
        keys = [int(batch.info.keys[0]) for batch in whole.items("t")]
        assert len(set(keys)) == shards
        assert max(keys) < 1 << 63
        assert whole.update_priorities("t", keys, np.ones(shards)) == shards
    for each in opened:
        each.close()


def test_q3_a_row_is_written_once(tmp_path):
    tables = [hr.Table(name, sampler=Uniform(), remover=Fifo(), max_size=10_000) for name in "abc"]
    signature = hr.Signature.like({"frame": np.zeros(1000, np.uint8)})
    with hr.Replay(signature, tables) as replay:
        rules = [hr.ItemRule("a", 1), hr.ItemRule("b", 8), hr.ItemRule("c", 32)]
        with replay.writer(items=rules) as writer:
            for number in range(500):
                writer.append({"frame": np.full(1000, number % 256, np.uint8)})
        path = replay.save(tmp_path)
    rows = sum(file.stat().st_size for file in path.glob("rows-*"))
    assert rows == 500 * 1000


def test_q2_one_instant_while_writers_write(tmp_path):
    """Every item of one table has its twin in the other, though writers insert and items leave all the time."""
    tables = [hr.Table(name, sampler=Uniform(), remover=Fifo(), max_size=64) for name in ("one", "two")]
    signature = hr.Signature.like({"x": 0, "twice": np.zeros(500)})
    saved = threading.Event()
    failures = []
    with hr.Replay(signature, tables, capacity=512, seed=0) as replay:

        def write(lane):
            try:
                with replay.writer(items=[hr.ItemRule("one", 1), hr.ItemRule("two", 1)]) as writer:
                    number = lane
                    while not saved.is_set():
                        writer.append({"x": number, "twice": np.full(500, 2.0 * number)})
                        number += 2
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(lane,)) for lane in (0, 1)]
        for thread in writers:
            thread.start()
        try:
            while len(replay.table("two")) < 64:
                replay.sample("one", 1)
            paths = [replay.save(tmp_path) for _ in range(4)]
        finally:
            saved.set()
            for thread in writers:
                thread.join()
        assert not failures
        assert replay.statistics().store.pages <= 512 // core_of(replay).store.arrays.page_rows + 2
    for path in paths:
        with hr.Replay.load(path) as loaded:
            values = []
            for name in ("one", "two"):
                data = [loaded.sample(name, 64).data for _ in range(10)]
                x = np.concatenate([each["x"] for each in data])
                np.testing.assert_array_equal(
                    np.concatenate([each["twice"] for each in data]), np.repeat(2.0 * x[:, None], 500, axis=1)
                )
                inserts = loaded.statistics().tables[name].inserts
                values.append((inserts, len(loaded.table(name))))
            # An append inserts into one table after the other, each under the lock.
            assert abs(values[0][0] - values[1][0]) <= 2
            assert values[0][1] == 64


def test_q2_a_save_does_not_hold_a_full_store_up(tmp_path, monkeypatch):
    """Pages that the save still has to write are not used again; others are allowed in their place."""
    from headrace.persist.checkpoint import files

    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=320)
    with hr.Replay(hr.Signature.like({"x": 0}), [table], capacity=320, seed=0) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for x in range(400):
            writer.append({"x": x})
        first_write = files.HashedWriter.write
        appended = []

        def write(self, array):
            if not appended:
                for x in range(400, 720):
                    writer.append({"x": x})
                    appended.append(x)
            first_write(self, array)

        monkeypatch.setattr(files.HashedWriter, "write", write)
        path = replay.save(tmp_path)
        monkeypatch.undo()
        for x in range(720, 1500):
            writer.append({"x": x})
        with hr.Replay.load(path) as loaded:
            assert sorted(set(loaded.sample("t", 5000).data["x"].tolist())) == list(range(80, 400))
        assert sorted(set(replay.sample("t", 5000).data["x"].tolist())) == list(range(1180, 1500))


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
def test_q2_an_episode_that_ends_during_the_save_is_saved_as_it_was(tmp_path, monkeypatch):
    from headrace.persist.checkpoint import files

    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=32)
    with hr.Replay(hr.Signature.like({"observation": 0.0}), [table]) as replay:
        writer = replay.writer(lanes=2, items=[hr.ItemRule("t", 1)])
        writer.append({"observation": np.array([1.0, 2.0])})
        write = files.HashedWriter.__init__

        def end_first(self, path, threads):
            if path.name == "steps.bin":
                writer.end_episode({"observation": np.array([8.0, 9.0])})
            write(self, path, threads)

        monkeypatch.setattr(files.HashedWriter, "__init__", end_first)
        path = replay.save(tmp_path)
        views = {"now": hr.View("observation"), "next": hr.View("observation", shift=1)}
        assert replay.sample("t", 1, views=views).data["next"].tolist() == [8.0]
        with hr.Replay.load(path) as loaded:
            assert loaded.sample("t", 1, views=views).data["now"].tolist() == [1.0]
            assert loaded.sample("t", 1, views=views).data["next"].tolist() == [0.0]


def test_q9_tables_given_win_over_those_saved(tmp_path):
    saved = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=10, max_times_sampled=9)
    with hr.Replay(hr.Signature.like({"x": 0}), [saved], seed=0) as replay:
        with replay.writer() as writer:
            for x in range(10):
                writer.append({"x": x})
                writer.create_item("t", 1, priority=float(x))
        before = [replay.sample("t", 1).data["x"][0] for _ in range(6)]
        path = replay.save(tmp_path)
    spent = {x for x in before if before.count(x) >= 2}
    assert spent
    given = hr.Table(
        "t",
        sampler=MaxHeap(),
        remover=MinHeap(),
        max_size=4,
        max_times_sampled=2,
        rate_limiter=MinSize(2),
    )
    with hr.Replay.load(path, tables=[given]) as loaded:
        left = sorted(set(range(10)) - spent)[-4:]
        statistics = loaded.statistics().tables["t"]
        assert (statistics.size, statistics.max_size, statistics.max_times_sampled) == (4, 4, 2)
        assert (statistics.inserts, statistics.samples, statistics.deletes) == (10, 6, 6)
        assert statistics.min_size == 2
        assert loaded.sample("t", 1).data["x"].tolist() == [left[-1]]


def test_q9_ties_of_a_heap_that_is_new_go_by_insertion(tmp_path):
    saved = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=10)
    with hr.Replay(hr.Signature.like({"x": 0}), [saved]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for x in range(5):
                writer.append({"x": x})
        path = replay.save(tmp_path)
    given = hr.Table("t", sampler=MinHeap(), remover=Fifo(), max_size=10, max_times_sampled=1)
    with hr.Replay.load(path, tables=[given]) as loaded:
        assert [int(loaded.sample("t", 1).data["x"][0]) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_q9_other_names_are_refused_also_for_a_directory(replay, tmp_path):
    path = replay.save(tmp_path)
    other = hr.Table("other", sampler=Uniform(), remover=Fifo(), max_size=3)
    for place in (path, tmp_path):
        with pytest.raises(hr.CheckpointError, match="uniform.*got other"):
            hr.Replay.load(place, tables=[other])


def test_settings_of_a_live_table_are_saved(tmp_path):
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=10)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        replay.table("t").configure(max_size=7, rate_limiter=SampleToInsertRatio(1.5, 2, 6.0))
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            statistics = loaded.statistics().tables["t"]
            assert (statistics.max_size, statistics.samples_per_insert) == (7, 1.5)
            assert (statistics.min_diff, statistics.max_diff) == (-3.0, 9.0)


def test_updates_and_ignored_entries_are_counted_on(tmp_path):
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=10)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        with replay.writer() as writer:
            writer.append({"x": 0})
            key = writer.create_item("t", 1)
        replay.update_priorities("t", [key, key + 100], [1.0, 1.0])
        replay.delete("t", [key + 100, key + 101])
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            statistics = loaded.statistics().tables["t"]
            assert (statistics.updates, statistics.ignored_updates, statistics.ignored_deletes) == (1, 1, 2)


@pytest.mark.parametrize(
    "table",
    [
        hr.Table.queue("t", 4),
        hr.Table.stack("t", 4),
        hr.Table("t", sampler=Prioritized(0.25), remover=Lifo(), max_size=9, rate_limiter=Queue(3)),
        hr.Table(
            "t", sampler=Uniform(replacement=False), remover=MaxHeap(), max_size=9, rate_limiter=Stack(3)
        ),
        hr.Table(
            "t", sampler=MinHeap(), remover=Uniform(), max_size=9, rate_limiter=SampleToInsertRatio(0.1, 3, 7)
        ),
        hr.Table(
            "t",
            sampler=MinHeap(),
            remover=Uniform(),
            max_size=9,
            rate_limiter=RateLimiter(0.3, 2, -1.0, np.inf),
        ),
    ],
)
def test_descriptions_come_back_equal(table):
    back = table_from_json(table_to_json(table))
    assert back == table
    assert type(back.rate_limiter) is type(table.rate_limiter)


def test_a_limiter_whose_user_was_warned_comes_back_without_warning():
    with pytest.warns(UserWarning, match="inserting closes"):
        limiter = SampleToInsertRatio(1.0, 10, (0.0, 5.0))
    table = hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=20, rate_limiter=limiter)
    assert table_from_json(table_to_json(table)) == table


def test_what_cannot_be_written_down_is_refused_before_anything_is_written(tmp_path):
    class Mine(Fifo):
        pass

    table = hr.Table("t", sampler=Mine(), remover=Fifo(), max_size=20)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        with pytest.raises(ValueError, match=r"table 't'.*cannot be written down.*load\(path, tables="):
            replay.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_signatures_of_all_containers_come_back(tmp_path):
    signature = hr.Signature(
        {"b": [hr.ArraySpec((2, 0), "uint8"), None], "a": ({"c": hr.ArraySpec((), "complex64")},)}
    )
    with hr.Replay(signature, [hr.Table.queue("q", 9)]) as replay:
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            writer.append({"b": [np.zeros((2, 0), np.uint8), None], "a": ({"c": 1j},)})
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            assert loaded.signature == signature
            assert loaded.sample("q", 1).data["a"][0]["c"].tolist() == [1j]


def test_a_closed_replay_is_not_saved(tmp_path):
    replay = hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)])
    replay.close()
    with pytest.raises(hr.Closed):
        replay.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
