"""The routes of the page; all of them only read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.errors import Closed, HeadraceError, Unsupported
from headrace.monitor.ages import Ages
from headrace.monitor.looking import look
from headrace.monitor.metrics import Metrics
from headrace.monitor.rates import series
from headrace.monitor.record import record_of, to_json
from headrace.monitor.recorder import Recorder
from headrace.spec import Signature

_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/collector.js": ("collector.js", "text/javascript"),
    "/item.js": ("item.js", "text/javascript"),
    "/plots.js": ("plots.js", "text/javascript"),
    "/server.js": ("server.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_STALLED_AFTER = 10.0
"""Seconds without a sample after which /health says so."""


class App:
    """Answers the requests of the page, of programs and of Prometheus.

    Args:
        recorder: has the samples.
        replays: by name; read only to look inside.
        signatures: of the replays, by name; None where unknown.
    """

    def __init__(
        self, recorder: Recorder, replays: Mapping[str, Any], signatures: Mapping[str, Signature | None]
    ) -> None:
        self._recorder, self._replays, self._signatures = recorder, replays, signatures
        self._ages = Ages()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Metrics(recorder))
        folder = files("headrace.monitor") / "page"
        self._page = {path: (folder / name).read_bytes() for path, (name, _) in _FILES.items()}

    def starlette(self) -> Starlette:
        """Returns the application. Routes that may wait run in a pool of threads, because they are plain functions."""
        routes = [Route(path, self._file) for path in _FILES]
        routes += [
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/api/statistics", self._statistics),
            Route("/api/history", self._history),
            Route("/api/item", self._item),
            Route("/api/ages", self._item_ages),
        ]
        return Starlette(routes=routes)

    # ---- answers from the newest sample ----------------------------------------------------------------------------

    def _file(self, request: Request) -> Response:
        path = request.url.path
        return Response(self._page[path], media_type=_FILES[path][1])

    def _health(self, _: Request) -> Response:
        newest = self._recorder.latest
        age = time.monotonic() - newest.seconds
        if age > _STALLED_AFTER:
            return _json({"status": "stalled", "age_seconds": round(age, 1)}, 503)
        if newest.problems:
            return _json({"status": "unavailable", "replays": list(newest.problems)}, 503)
        return _json({"status": "ok"})

    def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _statistics(self, _: Request) -> Response:
        return _json(record_of(self._recorder, self._signatures, time.monotonic()))

    def _history(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 19):
            return _error(400, f"after: expected the number of a sample, got {after!r}")
        return _json(series(self._recorder.since(int(after))))

    # ---- answers from a replay -------------------------------------------------------------------------------------

    def _item(self, request: Request) -> Response:
        return self._ask(request, self._look)

    def _look(self, replay: str, table: str) -> dict[str, Any]:
        record = self._recorder.newest_record(replay)
        return look(self._replays[replay], table, 0 if record is None else record.store.row_bytes)

    def _item_ages(self, request: Request) -> Response:
        return self._ask(request, lambda replay, table: self._ages.of(self._replays[replay], replay, table))

    def _ask(self, request: Request, answer: Any) -> Response:
        replay, table = request.query_params.get("replay", ""), request.query_params.get("table", "")
        if replay not in self._replays:
            return _error(404, f"no replay {replay!r}; there are {', '.join(map(repr, self._replays))}")
        try:
            return _json(answer(replay, table))
        except Closed as error:
            return _error(410, str(error))
        except Unsupported as error:
            return _error(501, str(error))
        except KeyError as error:
            return _error(404, str(error.args[0]) if error.args else "not found")
        except (HeadraceError, OSError) as error:
            return _error(503, f"{type(error).__name__}: {error}")


def _json(value: Any, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _error(status: int, text: str) -> Response:
    return _json({"error": text}, status)
