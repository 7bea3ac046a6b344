import inspect
import pickle

import pytest

from headrace import errors

EVERY_ERROR = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.HeadraceError) and error is not errors.WorkerDied
]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.SpecError, ValueError),
        (errors.DeadlineExceeded, TimeoutError),
        (errors.Disconnected, ConnectionError),
        (errors.AuthenticationError, PermissionError),
        (errors.ItemNotFound, KeyError),
        (errors.DatasetError, ValueError),
        (errors.Unsupported, NotImplementedError),
    ],
)
def test_an_error_is_caught_as_its_builtin_and_as_the_root(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, errors.HeadraceError)


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_a_message_is_shown_as_it_was_given_and_crosses_processes(error):
    sent = pickle.loads(pickle.dumps(error("expected this, got that")))
    assert type(sent) is error
    assert str(sent) == "expected this, got that"


@pytest.mark.parametrize("error", [errors.DeadlineExceeded, errors.Disconnected])
def test_pending_crosses_processes(error):
    assert error("late").pending == 0
    assert pickle.loads(pickle.dumps(error("late", pending=3))).pending == 3


def test_worker_died_says_which_and_how_and_crosses_processes():
    sent = pickle.loads(pickle.dumps(errors.WorkerDied("worker 2 was killed", worker_idx=2, exitcode=-9)))
    assert (str(sent), sent.worker_idx, sent.exitcode) == ("worker 2 was killed", 2, -9)
    assert errors.WorkerDied("gone", worker_idx=0).exitcode is None


def test_item_not_found_without_a_message_is_empty():
    assert str(errors.ItemNotFound()) == ""
