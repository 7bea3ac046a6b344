"""`headrace serve CONFIG`: serves replays and queues to other processes and machines."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import json_option


@click.command("serve")
@click.argument("config", metavar="CONFIG.toml", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--check",
    is_flag=True,
    help="Read CONFIG.toml with its tokens and certificates, report the first mistake, and start nothing.",
)
@json_option
def command(config: Path, check: bool, as_json: bool) -> None:
    """Serve replays and queues to other processes.

    CONFIG.toml says which. The server runs until SIGTERM or Ctrl-C. When clients can connect, one line with the
    addresses is printed: "ready at tcp://127.0.0.1:9000". The log goes to standard error. At the end running calls
    of clients are finished, and the replays are saved if there is a [checkpoint]. A second SIGTERM or Ctrl-C ends
    the process at once.

    \b
      headrace serve headrace.toml --check
      HEADRACE_TOKEN=... headrace serve headrace.toml
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.serve.run import run

    run(config, check=check, as_json=as_json)
