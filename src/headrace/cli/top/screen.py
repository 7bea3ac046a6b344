"""The lines of `headrace top`, made of a record of the live page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.cli import tables

_TABLE_HEADER = ("table", "items", "of", "in/s", "out/s", "ratio", "rate limiter", "waiting")
_WORKER_HEADER = ("worker", "process", "frames", "restarts", "version", "last step", "error")
_QUEUE_HEADER = ("queue", "waiting", "in/s", "out/s", "batches", "senders", "sends that waited")
_UNITS = (" ", "k", "M", "G", "T")


def screen(record: Mapping[str, Any], width: int | None) -> Iterator[str]:
    """Returns the lines for a record.

    Args:
        record: as /api/statistics gives it.
        width: of the terminal; None wraps nothing.
    """
    if record["server"] is not None:
        yield from tables.lines(_server_title(record["server"]), _server_rows(record["server"]), (), width)
        yield ""
    for name, replay in record["replays"].items():
        rows = [_table_row(table) for table in replay["tables"].values()]
        yield from tables.lines(_replay_title(name, replay), rows, _TABLE_HEADER, width)
        yield ""
    if record["queues"]:
        rows = [_queue_row(name, queue) for name, queue in record["queues"].items()]
        yield from tables.lines("queues", rows, _QUEUE_HEADER, width)
        yield ""
    collector = record["collector"]
    if collector is not None:
        yield from tables.lines("collector", _collector_rows(collector), (), width)
        if collector["workers"]:
            yield ""
            rows = [_worker_row(worker) for worker in collector["workers"]]
            yield from tables.lines("workers", rows, _WORKER_HEADER, width)


def short(value: float | None) -> str:
    """Returns a number in at most six characters.

    >>> short(None), short(0), short(12.345), short(4550), short(46_400), short(2_345_678)
    ('-', '0', '12.3', '4550', '46.4k', '2.35M')
    """
    if value is None:
        return "-"
    unit, size = 0, abs(value)
    if size >= 10_000:
        while size >= 1000 and unit < len(_UNITS) - 1:
            size, value, unit = size / 1000, value / 1000, unit + 1
    if unit == 0 and (float(value).is_integer() or size >= 100):
        return f"{value:.0f}"
    digits = 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:.{digits}f}{_UNITS[unit]}".rstrip()


def _server_title(server: Mapping[str, Any]) -> str:
    return f"server: version {server['version']}, up {_duration(server['seconds_up'])}"


def _server_rows(server: Mapping[str, Any]) -> list[list[str]]:
    now = server["rates"]["now"] or {"bytes_in": None, "bytes_out": None}
    return [
        ["clients", f"{short(server['connections'])} now, {short(server['connections_total'])} ever"],
        ["refused", f"{short(server['rejected_handshakes'])} handshakes, {short(server['protocol_errors'])} protocol "
         f"errors, {short(server['truncated_frames'])} cut messages"],
        ["bytes/s", f"{short(now['bytes_in'])} in, {short(now['bytes_out'])} out"],
        ["checkpoints", _checkpoints(server)],
    ]  # fmt: skip


def _checkpoints(server: Mapping[str, Any]) -> str:
    if server["checkpoints"] is None:
        return "no directory"
    age, seconds = server["checkpoint_age"], server["checkpoint_seconds"]
    newest = "" if age is None else f", newest {_duration(age)} ago, took {_duration(seconds)}"
    return f"{short(server['checkpoints'])} saved, {short(server['failed_checkpoints'])} failed{newest}"


def _queue_row(name: str, queue: Mapping[str, Any]) -> list[Any]:
    now = queue["rates"]["now"] or {"samples_received": None, "samples_delivered": None}
    return [
        name if queue["state"] == "open" else f"{name}  [{queue['state']}]",
        short(queue["size"]),
        short(now["samples_received"]),
        short(now["samples_delivered"]),
        short(queue["index"]),
        short(queue["senders"]),
        short(queue["blocked_sends"]),
    ]


def _replay_title(name: str, replay: Mapping[str, Any]) -> str:
    store = replay["store"]
    state = "" if replay["state"] == "open" else f"  [{replay['state']}]"
    if store is None:
        return f"{name}{state}"
    capacity = "" if store["capacity"] is None else f" of {short(store['capacity'])}"
    return f"{name}: {short(store['rows'])}{capacity} rows, {store['bytes'] / 2**20:.1f} MiB{state}"


def _table_row(table: Mapping[str, Any]) -> list[Any]:
    now = table["rates"]["now"] or {"inserts": None, "samples": None}
    return [
        table["name"],
        short(table["size"]),
        short(table["max_size"]),
        short(now["inserts"]),
        short(now["samples"]),
        _ratio(table),
        _limiter(table),
        _waiting(table),
    ]


def _ratio(table: Mapping[str, Any]) -> str:
    reached = short(table["samples_per_insert_so_far"])
    return f"{reached}/{short(table['samples_per_insert'])}" if table["gate"]["is_bounded"] else reached


def _limiter(table: Mapping[str, Any]) -> str:
    gate = table["gate"]
    if gate["items_missing"]:
        return f"{short(gate['items_missing'])} items to go"
    if gate["is_bounded"]:
        return f"{short(gate['difference'])} in {short(table['min_diff'])}..{short(table['max_diff'])}"
    return "open"


def _waiting(table: Mapping[str, Any]) -> str:
    waits = (
        ("insert", table["pending_inserts"], table["longest_waiting_insert"]),
        ("sample", table["waiting_samples"], table["longest_waiting_sample"]),
    )
    texts = [f"{n} {what}{'' if n == 1 else 's'} {_duration(seconds)}" for what, n, seconds in waits if n]
    return ", ".join(texts) or "-"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _collector_rows(collector: Mapping[str, Any]) -> list[list[str]]:
    lag = f"{collector['lag_min']} to {collector['lag_max']}, mean {short(collector['lag_mean'])} versions"
    return [
        ["frames", f"{short(collector['frames'])}, {short(collector['frames_per_second'])} per second"],
        ["episodes", f"{short(collector['episodes'])}, of the last 100 the mean return is "
         f"{short(collector['episode_return_mean'])} and the mean length {short(collector['episode_length_mean'])}"],
        ["policy lag", lag],
        ["lost", f"{short(collector['frames_discarded'])} frames, {collector['restarts']} restarts"],
    ]  # fmt: skip


def _worker_row(worker: Mapping[str, Any]) -> list[Any]:
    age = worker["last_step_age"]
    return [
        worker["worker_idx"],
        worker["pid"] if worker["alive"] else "dead",
        short(worker["frames"]),
        worker["restarts"],
        worker["policy_version"],
        "-" if age is None else f"{age:.1f} s ago",
        worker["last_error"] or "",
    ]
