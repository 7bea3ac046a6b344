"""Runs that callers share: each call is answered by a run after it, also after Ctrl-C."""

import threading

import pytest

from headrace.server.serving.shared_runs import SharedRuns


@pytest.mark.parametrize("has_begun", [False, True])
def test_ctrl_c_in_the_start_of_the_thread_leaves_no_wait(monkeypatch, has_begun):
    """server CL5: before the thread begins and after; the interrupted call is not answered, later ones are."""
    runs, found, started = SharedRuns(lambda: 7, "headrace-example"), [], []
    start = threading.Thread.start

    def interrupted(thread):
        started.append(thread)
        if has_begun:
            start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runs.begin(found.append)
    assert runs.wait(10.0)
    if has_begun:
        started[0].join(10.0)
        assert not started[0].is_alive()
    assert not found
    runs.begin(found.append)
    assert runs.wait(10.0)
    assert found == [7]
