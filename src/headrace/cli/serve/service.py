"""The replays, queues, server and page of `headrace serve`, from their start to their end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from headrace.cli.serve.checkpoints import open_replay, require_directory, save
from headrace.cli.serve.settings import Settings
from headrace.monitor import Monitor
from headrace.monitor import serve as serve_page
from headrace.monitor.monitor import page_libraries
from headrace.replay.public import Replay
from headrace.server.batch_queue import BatchQueue
from headrace.server.serving.checkpoints import check_folder_name
from headrace.server.serving.server import Server

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ready:
    """The addresses of a service that has started.

    Attributes:
        addresses: of the server, for clients.
        page: of the live page; None without one.
    """

    addresses: list[str]
    page: str | None


class Service:
    """Serves the replays and queues of some settings until it is asked to end. Use it as a context manager, once.

    Args:
        settings: of everything.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Makes everything in memory, and neither starts nor loads anything.

        Raises:
            click.BadParameter: settings that do not fit together.
        """
        in_memory = {name: replace(each, path=None) for name, each in self._settings.replays.items()}
        checkpoint = self._settings.checkpoint
        if checkpoint is not None:
            checkpoint = msgspec.structs.replace(checkpoint, load_newest=False)
        self._new_server(replace(self._settings, replays=in_memory, checkpoint=checkpoint))
        if self._settings.page is not None:
            with self._settings.document.at(("page",)):
                page_libraries()

    def run(self, announce: Callable[[Ready], None], wait: Callable[[float | None], bool]) -> None:
        """Starts, serves until `wait` says that it is enough, and saves the replays.

        Args:
            announce: called when clients can connect.
            wait: waits for some seconds, or without limit, and returns whether to end.

        Raises:
            click.BadParameter: settings that do not fit together.
            OSError: an address cannot be bound, or a file or the directory of checkpoints cannot be written.
            CheckpointError: a store or a checkpoint cannot be used, or a replay could not be saved at the end.
        """
        settings = self._settings
        if settings.checkpoint is not None:
            require_directory(settings.checkpoint.directory)
        server = self._new_server(settings)
        # First, because a server that ends saves its replays, and one that could not start has nothing new.
        page = self._start_page(server)
        with server:
            if page is not None:
                page.refresh()
            announce(Ready(server.addresses, None if page is None else page.url))
            every = None if settings.checkpoint is None else settings.checkpoint.every_seconds
            while not wait(every):
                save(server)
            _LOGGER.info("ending: clients may finish their calls for %g s", settings.drain_timeout)
            server.stop(settings.drain_timeout)
            if settings.checkpoint is not None:
                _LOGGER.info("saved to %s", settings.checkpoint.directory)

    def _new_server(self, settings: Settings) -> Server:
        document = settings.document
        served: dict[str, Replay | BatchQueue] = {}
        for name, each in settings.replays.items():
            with document.at(("replays", name)):
                if settings.checkpoint is not None:
                    check_folder_name(name)
                replay = self._stack.enter_context(open_replay(each, self._loaded_from(settings, name)))
            served[name] = replay
        for name, queue in settings.queues.items():
            with document.at(("queues", name)):
                example = queue.signature.zeros()
                made = BatchQueue(example, queue.batch_size, num_buffers=queue.num_buffers)
            served[name] = self._stack.enter_context(made)
        checkpoint = settings.checkpoint
        with document.at(("address",)):
            return Server(
                served,
                address=settings.address,
                unix=settings.unix,
                token=settings.token,
                tls=settings.tls,
                limits=settings.limits,
                checkpoint=None if checkpoint is None else checkpoint.directory,
                keep=None if checkpoint is None else checkpoint.keep,
                insecure=settings.insecure,
            )

    def _loaded_from(self, settings: Settings, name: str) -> Path | None:
        given = settings.checkpoint
        return Path(given.directory) / name if given is not None and given.load_newest else None

    def _start_page(self, server: Server) -> Monitor | None:
        page = self._settings.page
        if page is None:
            return None
        with self._settings.document.at(("page",)):
            monitor = serve_page(server, host=page.host, port=page.port, token=self._settings.page_token)
        return self._stack.enter_context(monitor)
