"""The rows of a worker that is ready: where they go."""

# Rules: collectors CF1, CF2, CV7

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.collectors.handle.forwarded_rows import ForwardedCalls, ForwardedRows
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.rows import WorkerRows, shared_store
from headrace.collectors.multi.options import MultiOptions
from headrace.leases.destination import ReplayItems
from headrace.replay.public import Replay, core_of


def new_rows(
    options: MultiOptions,
    status: GroupStatus,
    handle: WorkerHandle,
    unblocked: Callable[[], None],
    fail: Callable[[WorkerHandle, BaseException], None],
) -> WorkerRows:
    """Returns rows in a store of their own, in a replay of this process, or on their way to one that is elsewhere.

    Args:
        options: of the collector.
        status: of the workers.
        handle: of the worker.
        unblocked: called when no items of the worker's rows wait any more.
        fail: called when rows cannot be stored.

    Raises:
        ValueError: a page of the replay cannot hold a step.
    """
    replay, num_envs = options.replay_buffer, handle.ready.num_envs
    if replay is None:
        return WorkerRows(handle.ready, handle.answer)
    if not isinstance(replay, Replay):
        forwarded = _forwarded(options, status, handle, unblocked, fail)
        return WorkerRows(handle.ready, handle.answer, forwarded)
    core = core_of(replay)
    page_rows = core.store.arrays.page_rows
    if num_envs > page_rows:
        raise ValueError(
            f"replay_buffer: a step of the {num_envs} environments of the worker must fit into {page_rows} rows, "
            "1/32 of the capacity or 16 MiB; give the replay a larger capacity or the worker fewer environments"
        )
    items = ReplayItems(core, options.rules(), unblocked)
    # While workers collect freely, the learner may remove items.
    return WorkerRows(
        handle.ready, handle.answer, items, lambda: status.is_running and core.items_may_leave()
    )


def _forwarded(
    options: MultiOptions,
    status: GroupStatus,
    handle: WorkerHandle,
    unblocked: Callable[[], None],
    fail: Callable[[WorkerHandle, BaseException], None],
) -> ForwardedRows:
    replay, lanes = options.replay_buffer, handle.ready.num_envs
    writer = replay.row_writer(lanes, items=options.rules())
    calls = ForwardedCalls(
        may_wait=lambda: not (status.is_iterating or status.is_closed),
        is_closed=lambda: status.is_closed,
        stored=status.notify,
        all_applied=unblocked,
        failed=partial(fail, handle),
    )
    return ForwardedRows(shared_store(handle.ready, replay.signature), lanes, writer, calls)
