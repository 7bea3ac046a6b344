"""`headrace top ADDRESS`: shows a running replay or server in the terminal."""

from __future__ import annotations

import click

from headrace.cli.tls_files import TlsFiles, tls_options


@click.command("top")
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--once", is_flag=True, help="Print the numbers once. So it is also where there is no terminal."
)
@click.option("--json", "as_json", is_flag=True, help="Print the record once, as one JSON object.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two drawings.",
)
@tls_options
def command(address: str, once: bool, as_json: bool, interval: float, tls_files: TlsFiles) -> None:
    """Watch a running program in the terminal.

    Tables, queues, rates, waits and workers are shown until Ctrl-C. ADDRESS is the http address of a live page
    (hr.monitor.serve), or the tcp or unix address of a server (hr.Server, headrace serve). A token is read from the
    environment variable HEADRACE_TOKEN.

    \b
      headrace top tcp://127.0.0.1:9000
      headrace top unix:///run/headrace/server.sock --once
      headrace top http://127.0.0.1:8080
      headrace top 127.0.0.1:8080 --once
      HEADRACE_TOKEN=... headrace top http://learner:8080 --json
    """  # noqa: D301 - click reads this backspace
    from headrace.cli.top.run import run

    run(address, tls_files, once=once, as_json=as_json, interval=interval)
