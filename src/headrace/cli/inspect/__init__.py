"""`headrace inspect SOURCE`: shows the episodes of a dataset, a saved replay or a training run, or a server."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.options import SERVER_SCHEMES, given, reading_options
from headrace.cli.tls_files import TlsFiles, tls_options


@click.command("inspect")
@click.argument("source", metavar="PATH|ADDRESS")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every episode.")
@click.option(
    "--png",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the returns to this file and, for images, a contact sheet.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report with plots and images to this file, which needs no other file.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Compare all rows of a replay on disk with their checksums, and print only the result.",
)
@reading_options
@tls_options
def command(
    source: str,
    as_json: bool,
    png: Path | None,
    html: Path | None,
    verify: bool,
    missing_final: str | None,
    max_episode_steps: int | None,
    tls_files: TlsFiles,
) -> None:
    """Show the contents of a dataset, a saved replay or a server.

    It shows the episodes, their returns and lengths, and of each array of a step the range and a histogram. It names
    things worth a look, such as NaN or rewards of one sign.

    PATH is an npz, Parquet or D4RL file, the folder of a Minari or LeRobot dataset, the id of a Minari dataset, a
    folder of headrace collect or headrace train, or the folder of a replay on disk or of its checkpoints. ADDRESS is
    that of a server: then its replays, tables and queues are shown, and random items of each table, which do not
    count as samples. A token is read from the environment variable HEADRACE_TOKEN. Nothing is changed.

    \b
      headrace inspect out/cartpole
      headrace inspect expert.parquet
      headrace inspect cartpole/expert-v0 --png expert.png
      headrace inspect out/cartpole --html report.html
      headrace inspect runs/store --verify
      headrace inspect tcp://127.0.0.1:9000 --html server.html
    """  # noqa: D301 - click reads this backspace
    reading = given(missing_final=missing_final, max_episode_steps=max_episode_steps)
    if source.startswith(SERVER_SCHEMES):
        if png is not None or verify or reading:
            raise click.UsageError(
                "--png, --verify, --missing-final and --max-episode-steps: expected a path, got the address "
                f"{source}"
            )
        from headrace.cli.inspect.server.show import show_server

        show_server(source, tls_files, as_json=as_json, report=html)
        return
    tls_files.require_server(source)
    if verify:
        if png is not None or html is not None or reading:
            raise click.UsageError(
                "--verify prints only its result; leave out --png, --html, --missing-final and --max-episode-steps"
            )
        from headrace.cli.inspect.verify import verify_store

        verify_store(source, as_json=as_json)
        return
    from headrace.cli.inspect.run import run

    run(source, reading, as_json=as_json, png=png, html=html)
