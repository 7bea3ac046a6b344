"""`scripts/bench [NAME ...] [--peers] [--json FILE]`."""

from __future__ import annotations

import time

import click

from bench import (
    append,
    checkpoints,
    cold_start,
    collect,
    compression,
    deaths,
    footprint,
    frames,
    hindsight,
    import_time,
    leases,
    loaders,
    machine,
    observers,
    others,
    peers,
    prioritized,
    returns,
    rollouts,
    sequences,
    server,
    server_delays,
    threads,
    uniform,
    views,
    weights,
    writers,
)
from bench.case import Case
from bench.measure import Plan
from bench.report import Report

_TOPICS = (
    import_time,
    cold_start,
    append,
    uniform,
    prioritized,
    frames,
    sequences,
    hindsight,
    returns,
    rollouts,
    views,
    footprint,
    observers,
    writers,
    threads,
    loaders,
    collect,
    weights,
    deaths,
    leases,
    server,
    server_delays,
    compression,
    checkpoints,
    others,
)


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    return [case for topic in _TOPICS for case in topic.cases()]


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--peers", "with_peers", is_flag=True, help="Measure other libraries too, as far as they are installed."
)
@click.option("--json", "path", type=click.Path(dir_okay=False), help="Write JSON lines to this file.")
def main(names: tuple[str, ...], with_peers: bool, path: str | None) -> None:
    """Measure Headrace against the bare limits of this machine.

    NAME is a case or the beginning of one: "append", "uniform/views".
    """
    cases = all_cases()
    chosen = [case for case in cases if not names or any(case.name.startswith(name) for name in names)]
    if not chosen:
        raise click.UsageError(
            f"no case begins with {names}; there are {', '.join(case.name for case in cases)}"
        )
    report = Report(machine.describe(), path)
    begin = time.perf_counter()
    for number, case in enumerate(chosen, 1):
        click.echo(f"[{number}/{len(chosen)}] {case.name}", err=True)
        for row in case.rows(Plan(peers=with_peers)):
            report.add(row)
    report.show()
    if with_peers and peers.missing():
        click.echo(f"not installed, skipped: {', '.join(peers.missing())}")
    click.echo(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
