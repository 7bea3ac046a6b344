"""The workers that have failed, as the state of all workers tells them (CX2 to CX4)."""

import headrace as hr
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.status import WorkerStatus


class Process:
    """A process that has ended."""

    exitcode = -9

    def __str__(self):
        return "process 7"

    def describe_exit(self, exitcode):
        return f"exit {exitcode}"


def group_of(count):
    group = GroupStatus()
    group.workers += [WorkerStatus(number, Process(), group.note_worker) for number in range(count)]
    return group


def test_failed_workers_are_known_without_a_look_at_each():
    group = group_of(1000)
    for worker in group.workers:
        worker.note_ready()
    assert (group.failed, group.failure) == (frozenset(), None)
    dead, well = group.workers[700], group.workers[3]
    dead.note_death(-9)
    well.note_cause(ValueError("it ends"), "ValueError: it ends")  # A process takes its place.
    workers, group.workers = group.workers, {700: dead}
    assert group.failed == {700}
    assert isinstance(group.failure, hr.WorkerDied)
    assert group.failure.worker_idx == 700
    workers[9].note_failure(RuntimeError("a report"))
    assert group.failed == {9, 700}
    dead.begin(Process())
    assert group.failed == {9, 700}  # Its death is for good.


def test_a_worker_that_cannot_begin_has_failed():
    group = group_of(2)
    group.workers[1].note_cause(ValueError("no environment"), "ValueError: no environment")
    assert group.failed == {1}
    assert str(group.failure) == "no environment"
    group.workers[1].begin(Process())
    assert (group.failed, group.failure) == (frozenset(), None)
    error = RuntimeError("not closed")
    group.note_unfinished(error)
    assert group.failure is error
