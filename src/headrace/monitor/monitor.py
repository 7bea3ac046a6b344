"""Serves the live page from a thread of this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from headrace.checks import check_count, is_name, shown
from headrace.closing import Closing
from headrace.errors import HeadraceError
from headrace.monitor.recorder import HasCollectorStatistics, Recorder
from headrace.monitor.sources import EachOne, HasStatistics, Source, WholeServer
from headrace.server.batch_queue import BatchQueue
from headrace.server.serving.server import Server
from headrace.spec import Signature

_LOGGER = logging.getLogger(__name__)
_SECONDS_TO_CLOSE = 5.0
_LARGEST_PORT = 65535


class Monitor(Closing):
    """A live page that is being served; made by `serve`. Also a context manager.

    Attributes:
        url: address of the page, without the token.

    >>> import headrace as hr
    >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
    ...     with hr.monitor.serve(replay) as monitor:
    ...         monitor.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, server: Any, listener: socket.socket, url: str, recorder: Recorder) -> None:
        self.url = url
        self._server, self._listener, self._recorder = server, listener, recorder
        self._thread = threading.Thread(target=self._run, name="headrace-monitor-page", daemon=True)
        try:
            recorder.start()
        except BaseException:
            listener.close()
            raise
        self._thread.start()

    def _run(self) -> None:
        with self._listener:
            asyncio.run(self._server.serve(sockets=[self._listener]))

    def refresh(self) -> None:
        """Takes the statistics now, instead of within a second."""
        self._recorder.take()

    def close(self) -> None:
        """Ends the page and its threads. The replay stays open. A second call does nothing."""
        self._recorder.stop()
        self._server.should_exit = True
        self._thread.join(timeout=_SECONDS_TO_CLOSE)

    def __repr__(self) -> str:
        return f"<Monitor at {self.url}{'' if self._thread.is_alive() else ': closed'}>"


def serve(
    replay: HasStatistics | Mapping[str, HasStatistics] | Server,
    *,
    collector: HasCollectorStatistics | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> Monitor:
    """Serves a live page of a replay or a server: tables, rates, waits and a look at random items. Returns at once.

    The page only reads: nothing that it shows counts as a sample. A thread of this process takes the statistics once a
    second, and keeps those of the last ten minutes. The page stays until `close` is called or the process ends.

    Args:
        replay: a replay; several replays and queues by name; or a server, which is shown with its replays, queues and
            connections while it runs.
        collector: also shows this collector.
        host: the address to listen at. Other machines reach it only if it is not a loopback address.
        port: 0 takes a free one.
        token: what visitors must show; required where other machines can reach the page. Open it once as
            `URL?token=TOKEN`; programs send the header `Authorization: Bearer TOKEN`.

    Raises:
        ImportError: the extra `server` is not installed.
        OSError: the port is in use.
        TypeError: the replay or the collector has no `statistics`, or the port is not an integer.
        ValueError: no replay, no such port, a name that cannot be shown, or `host` is not a loopback address and
            there is no token.
    """
    source, objects = _source(replay)
    replays = {name: each for name, each in objects.items() if hasattr(each, "table")}
    if collector is not None and not hasattr(collector, "statistics"):
        raise TypeError(
            f"collector: expected a collector, got {type(collector).__name__}: {shown(collector)}"
        )
    if token == "":
        raise ValueError("token: expected a text of at least one character; None is no token")
    if check_count("port", port, 0) > _LARGEST_PORT:
        raise ValueError(f"port: expected at most {_LARGEST_PORT}, got {shown(port)}")
    uvicorn, app_module, access, connections = page_libraries()
    if token is None and not access.is_loopback(host):
        raise ValueError(
            f"host: {host!r} can be reached from other machines; expected a token as well, got none"
        )
    recorder = Recorder(source, collector)
    app = app_module.App(recorder, replays, {name: _signature(each) for name, each in replays.items()})
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    config = uvicorn.Config(
        access.Access(app.starlette(), token, bound),
        http=connections.BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    _print_nothing()
    url = f"http://{f'[{host}]' if ':' in host else host}:{bound}/"
    _LOGGER.info("live page at %s", url)
    return Monitor(uvicorn.Server(config), listener, url, recorder)


def _print_nothing() -> None:
    """Keeps uvicorn's warnings, such as one for each bad request, from stderr where the user has set up no logging."""
    logger = logging.getLogger("uvicorn.error")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _source(replay: Any) -> tuple[Source, dict[str, Any]]:
    """Returns the source of statistics, and the replays and queues by name."""
    if isinstance(replay, Server):
        return WholeServer(replay, replay.served), dict(replay.served)
    objects = dict(replay) if isinstance(replay, Mapping) else {"replay": replay}
    if not objects:
        raise ValueError("replay: expected at least one, got none")
    for name, each in objects.items():
        if not is_name(name):
            raise ValueError(
                f"replay: expected names that are non-empty strings and fit into UTF-8, got {name!r}"
            )
        is_known = hasattr(each, "table") or isinstance(each, BatchQueue)
        if isinstance(each, type) or not hasattr(each, "statistics") or not is_known:
            raise TypeError(
                f"replay: expected a Replay, a BatchQueue, or an object with the interface of a Replay, got "
                f"{type(each).__name__} as {name!r}: {shown(each)}"
            )
    return EachOne(objects), objects


def _signature(replay: Any) -> Signature | None:
    try:
        found = replay.signature
    except (HeadraceError, OSError, AttributeError):
        return None
    return found if isinstance(found, Signature) else None


def page_libraries() -> tuple[ModuleType, ModuleType, ModuleType, ModuleType]:
    """Imports the optional libraries of a page, and the modules that need them.

    Raises:
        ImportError: the extra `server` is not installed.
    """
    try:
        import uvicorn

        from headrace.monitor import access, app, connections
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "headrace":
            raise
        raise ImportError(f'hr.monitor.serve needs {error.name}: pip install "headrace[server]"') from error
    return uvicorn, app, access, connections


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=64)
