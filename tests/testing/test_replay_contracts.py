"""The contracts of replays and writers over ours, in memory and on disk, and over broken ones."""

import inspect

import numpy as np
import pytest

import headrace as hr
from headrace.testing import ReplayContract, WriterContract


class TestReplayInMemory(ReplayContract):
    def make(self, signature, tables, seed=0):
        return hr.Replay(signature, tables, seed=seed)


class TestWriterInMemory(WriterContract):
    def make(self, signature, tables, capacity=None):
        return hr.Replay(signature, tables, capacity=capacity)


class OnDisk:
    @pytest.fixture(autouse=True)
    def in_a_folder(self, tmp_path):
        self.folder, self.made = tmp_path, 0

    def on_disk(self, signature, tables, **settings):
        self.made += 1
        return hr.Replay(signature, tables, path=self.folder / str(self.made), **settings)


class TestReplayOnDisk(OnDisk, ReplayContract):
    def make(self, signature, tables, seed=0):
        return self.on_disk(signature, tables, seed=seed)


class TestWriterOnDisk(OnDisk, WriterContract):
    def make(self, signature, tables, capacity=None):
        return self.on_disk(signature, tables, capacity=capacity)


# ---- a contract that a broken thing passes is worth nothing ------------------------------------------------------


class Wrapped:
    """Does the same as what it wraps, to be broken in one place each."""

    def __init__(self, inner):
        self.__dict__["inner"] = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __setattr__(self, name, value):
        setattr(self.inner, name, value)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.inner.close()


class DropsHalfOfItsDeletes(Wrapped):
    def delete(self, table, keys):
        return self.inner.delete(table, list(keys)[:1])


class UpdatesOneByOne(Wrapped):
    def update_priorities(self, table, keys, priorities):
        return sum(
            self.inner.update_priorities(table, [key], [value])
            for key, value in zip(keys, priorities, strict=False)
        )


class SamplesWhatItCan(Wrapped):
    def sample(self, table, batch_size, *, views=None, timeout=None):
        while batch_size > 1 and not self.inner.can_sample(table, batch_size):
            batch_size -= 1
        return self.inner.sample(table, batch_size, views=views, timeout=timeout)


class GivesTheSameArrays(Wrapped):
    kept = None

    def sample(self, table, batch_size, *, views=None, timeout=None):
        if self.kept is None:
            self.__dict__["kept"] = self.inner.sample(table, batch_size, views=views, timeout=timeout)
        return self.kept


class TakesNoViews(Wrapped):
    def sample(self, table, batch_size, *, timeout=None):
        return self.inner.sample(table, batch_size, timeout=timeout)


class StaysOpen(Wrapped):
    is_closed = False

    def check_open(self):
        pass


class ForgetsTheSeed(Wrapped):
    pass


def replay_contract_of(broken):
    class Contract(ReplayContract):
        def make(self, signature, tables, seed=0):
            return broken(hr.Replay(signature, tables, seed=None if broken is ForgetsTheSeed else seed))

    return Contract


class WithWriters(Wrapped):
    broken = Wrapped

    def row_writer(self, *args, **kwargs):
        return self.broken(self.inner.row_writer(*args, **kwargs))


class StoresWhatDoesNotFit(Wrapped):
    def append(self, step):
        self.inner.append({"n": int(step["n"]), "x": np.resize(step.get("x", 0), 2).astype(np.float32)})


class StoresIdleLanes(Wrapped):
    def append_ends(self, step, idle, ended, finals):
        self.inner.append_ends(step, np.zeros_like(idle), ended, finals)


class KeepsStreams(Wrapped):
    def cut_open_lanes(self, end=None):
        self.inner.end_lanes(np.array([0]), None)


class ForgetsTheEnd(Wrapped):
    def cut_open_lanes(self, end=None):
        self.inner.cut_open_lanes()


class FlushesAtOnce(Wrapped):
    def flush(self, timeout=None, durable=False):
        pass


class ClosesWithoutAWord(Wrapped):
    def close(self, timeout=None):
        pass

    def abandon(self):
        pass


class KeepsPriorities(Wrapped):
    def give_priorities(self, priorities):
        pass


class RecordsTwice(Wrapped):
    def take_made(self):
        self.__dict__["made"] = [*self.__dict__.get("made", []), *self.inner.take_made()]
        return self.made


class HasStaleStages(Wrapped):
    """It stores other values than it says are staged."""

    @property
    def staged(self):
        return {"n": np.zeros(2, np.int64)}

    def append_checked(self, step):
        self.inner.append_checked({**step, "n": np.array(step["n"]) * 0})


def writer_contract_of(broken):
    class Replay(WithWriters):
        pass

    Replay.broken = broken

    class Contract(WriterContract):
        def make(self, signature, tables, capacity=None):
            return Replay(hr.Replay(signature, tables, capacity=capacity))

    return Contract


def fails(contract, name):
    try:
        getattr(contract(), name)()
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("contract", [replay_contract_of(Wrapped), writer_contract_of(Wrapped)])
def test_the_wrapper_that_is_broken_below_is_right(contract):
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_"):
            test(contract())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("contract", "test"),
    [
        (replay_contract_of(DropsHalfOfItsDeletes), "test_deletes_are_counted"),
        (replay_contract_of(UpdatesOneByOne), "test_bad_priorities_change_nothing"),
        (replay_contract_of(SamplesWhatItCan), "test_a_batch_is_served_whole_or_not_at_all"),
        (replay_contract_of(GivesTheSameArrays), "test_a_batch_is_a_copy"),
        (replay_contract_of(TakesNoViews), "test_it_has_the_interface"),
        (replay_contract_of(StaysOpen), "test_closing_ends_everything"),
        (replay_contract_of(ForgetsTheSeed), "test_the_same_seed_gives_the_same_batches"),
        (writer_contract_of(StoresWhatDoesNotFit), "test_a_step_that_does_not_fit_is_not_stored"),
        (writer_contract_of(StoresIdleLanes), "test_lanes_end_in_one_call_with_their_step"),
        (writer_contract_of(KeepsStreams), "test_streams_go_on_over_ends_until_they_are_ended"),
        (writer_contract_of(ForgetsTheEnd), "test_cut_and_dropped_episodes"),
        (writer_contract_of(FlushesAtOnce), "test_a_flush_returns_when_every_item_is_in"),
        (writer_contract_of(ClosesWithoutAWord), "test_a_flush_returns_when_every_item_is_in"),
        (writer_contract_of(ClosesWithoutAWord), "test_an_abandoned_writer_leaves_its_items"),
        (writer_contract_of(KeepsPriorities), "test_priorities_and_windows_are_given_with_a_call"),
        (writer_contract_of(RecordsTwice), "test_items_are_recorded_once"),
        (writer_contract_of(HasStaleStages), "test_staged_arrays_are_of_the_next_step"),
    ],
)
def test_a_broken_one_fails(contract, test):
    assert fails(contract, test)
