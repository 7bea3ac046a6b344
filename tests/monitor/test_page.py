"""The page over HTTP, from a real server on this machine."""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.monitor import access
from headrace.monitor.app import App
from headrace.monitor.recorder import Recorder
from headrace.monitor.sources import EachOne

NASTY = "<img src=x onerror=alert(1)>&\"'😀"
SIGNATURE = hr.Signature.like({NASTY: np.float32(0), "x": np.zeros(3, np.float32)})
PAGE = Path(hr.monitor.__file__).parent / "page"


class Answer:
    def __init__(self, answer):
        self.status, self.headers, self.text = answer.status, answer.headers, answer.read().decode()

    @property
    def json(self):
        return json.loads(self.text)


def get(monitor, path, method="GET", **headers):
    port = int(monitor.url.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        return Answer(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture
def replay():
    tables = [hr.Table.queue(NASTY, 9), hr.Table.queue("empty", 9)]
    with hr.Replay(SIGNATURE, tables) as replay:
        with replay.writer(items=[hr.ItemRule(NASTY, 2)]) as writer:
            for n in range(4):
                writer.append({NASTY: np.float32(n), "x": np.ones(3, np.float32)})
        yield replay


@pytest.fixture
def monitor(replay):
    with hr.monitor.serve(replay) as monitor:
        yield monitor
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-monitor")]


def query(**values):
    from urllib.parse import urlencode

    return urlencode(values)


def test_every_file_of_the_page_is_served_and_loads_nothing_from_elsewhere(monitor):
    wanted, seen = {"/"}, set()
    while wanted - seen:
        path = (wanted - seen).pop()
        seen.add(path)
        answer = get(monitor, path)
        assert answer.status == 200, path
        assert "charset" in answer.headers["Content-Type"] or path.endswith(".svg")
        wanted |= {f"/{name}" for name in re.findall(r'(?:src|href)="([^"]+)"', answer.text)}
        wanted |= {f"/{name}" for name in re.findall(r'from "\./([^"]+)"', answer.text)}
        outside = set(re.findall(r"https?://[^\s\"']+", answer.text)) - {"http://www.w3.org/2000/svg"}
        assert not outside
    assert seen == {"/", *(f"/{file.name}" for file in PAGE.iterdir() if file.name != "index.html")}


def test_no_script_turns_text_into_markup():
    for file in PAGE.glob("*.js"):
        text = file.read_text(encoding="utf-8")
        for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
            assert risky not in text, file.name


def test_names_that_every_object_of_javascript_has_are_names_like_others():
    """The page keeps what it is told by names; an object of the usual kind has a "constructor" already."""
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    assert not re.search(r"[=:(|] *\{\}", script)
    assert "Object.create(null)" in script


def test_headers_keep_browsers_from_loading_or_guessing(monitor):
    for path in ("/", "/api/statistics", "/nothing"):
        headers = get(monitor, path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_statistics_history_health_and_metrics(monitor, replay):
    found = get(monitor, "/api/statistics").json
    assert found["replays"]["replay"]["tables"][NASTY]["size"] == 3
    assert found["replays"]["replay"]["columns"] == {NASTY: "float32[]", "x": "float32[3]"}
    news = get(monitor, "/api/history?after=0").json
    assert list(news["replays"]["replay"]) == [NASTY, "empty"]
    later = get(monitor, f"/api/history?after={news['number']}").json
    assert later["count"] == later["number"] - news["number"]  # Another sample may have been taken meanwhile.
    assert get(monitor, "/api/history?after=-1").status == 400
    assert get(monitor, "/health").json == {"status": "ok"}
    metrics = get(monitor, "/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain")
    assert 'table="empty"} 0.0' in metrics.text


def test_looking_inside_counts_nothing(monitor, replay):
    before = replay.statistics()
    for _ in range(3):
        item = get(monitor, f"/api/item?{query(replay='replay', table=NASTY)}").json
        assert (item["rows"], [column["name"] for column in item["columns"]]) == (2, [NASTY, "x"])
        ages = get(monitor, f"/api/ages?{query(replay='replay', table=NASTY)}").json
        assert (ages["size"], ages["rows"], ages["oldest_age"]) == (3, 4, 2)
    assert replay.statistics() == before


@pytest.mark.parametrize("path", ["item", "ages"])
def test_errors_of_looking_inside(monitor, path):
    assert get(monitor, f"/api/{path}?{query(replay='other', table=NASTY)}").json == {
        "error": "no replay 'other'; there are 'replay'"
    }
    answer = get(monitor, f"/api/{path}?{query(replay='replay', table='none')}")
    assert answer.status == 404
    assert answer.json["error"].startswith("no table 'none'; there are")
    assert get(monitor, f"/api/{path}").status == 404


def test_an_empty_table_says_so(monitor):
    answer = get(monitor, f"/api/item?{query(replay='replay', table='empty')}")
    assert (answer.status, answer.json["error"]) == (404, "the table has no items")


def test_nothing_can_be_changed(monitor):
    for path in ("/", "/api/statistics", "/api/item", "/metrics"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert get(monitor, path, method).status == 405


def test_a_closed_replay_is_reported(replay):
    with hr.monitor.serve(replay) as monitor:
        replay.close()
        monitor._recorder.take()
        assert get(monitor, "/health").status == 503
        assert get(monitor, "/api/statistics").json["replays"]["replay"]["state"] == "closed"
        assert get(monitor, f"/api/item?{query(replay='replay', table=NASTY)}").status == 410
        assert 'headrace_replay_up{replay="replay"} 0.0' in get(monitor, "/metrics").text


def test_a_stalled_recorder_is_not_healthy(replay, monkeypatch):
    recorder = Recorder(EachOne({"replay": replay}))
    recorder.take()
    app = App(recorder, {"replay": replay}, {"replay": SIGNATURE})
    assert app._health(None).status_code == 200
    monkeypatch.setattr("headrace.monitor.app._STALLED_AFTER", -1.0)
    assert (app._health(None).status_code, json.loads(app._health(None).body)["status"]) == (503, "stalled")


# ---- access ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:80", 200), ("127.0.0.1", 200), ("[::1]:8080", 200), ("LOCALHOST", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example", 421), ("", 421)],
)  # fmt: skip
def test_without_a_token_only_names_of_this_machine_are_answered(monitor, host, status):
    assert get(monitor, "/api/statistics", Host=host).status == status


def paths_of(replay):
    return {route.path for route in App(None, {"r": replay}, {}).starlette().routes}


def test_a_token_is_needed_for_all_but_health(replay):
    with hr.monitor.serve(replay, token="s3cret") as monitor:
        others = (
            "/nothing",
            "/health/",
            "//health",
            "/api/statistics?token=s3cret",
            "/?token=s3cret&token=other",
        )
        for path in (*paths_of(replay) - {"/health"}, *others):
            assert get(monitor, path).status == 401, path
        assert get(monitor, "/health").status == 200
        assert get(monitor, "/api/statistics", Authorization="Bearer s3cret").status == 200
        assert get(monitor, "/api/statistics", Authorization="Bearer s3cret", Host="a.example").status == 200
        for wrong in ("Bearer s3creT", "Basic s3cret", "s3cret", "Bearer", "Bearer é"):
            assert get(monitor, "/metrics", Authorization=wrong).status == 401
        assert "s3cret" not in repr(monitor) + monitor.url


def test_the_address_with_the_token_leaves_a_cookie_and_not_the_token(replay):
    with hr.monitor.serve(replay, token="s3cret") as monitor:
        assert get(monitor, "/?token=other").status == 401
        answer = get(monitor, "/?token=s3cret")
        assert (answer.status, answer.headers["Location"]) == (303, ".")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "s3cret" not in cookie
        assert get(monitor, "/", Cookie=cookie.partition(";")[0]).status == 200
        name = cookie.partition("=")[0]
        assert get(monitor, "/", Cookie=f"{name}=s3cret").status == 401


def test_loopback_names():
    assert all(map(access.is_loopback, ("localhost", "127.0.0.1", "127.3.2.1", "::1")))
    assert not any(map(access.is_loopback, ("0.0.0.0", "10.0.0.1", "::", "localhost.evil.example", "")))


# ---- serve -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "error"), [(-1, ValueError), (65536, ValueError), ("8080", TypeError), (True, TypeError)]
)
def test_the_port_is_checked(replay, port, error):
    with pytest.raises(error, match=r"port: expected .*, got"):
        hr.monitor.serve(replay, port=port)


def test_other_machines_need_a_token(replay):
    with pytest.raises(ValueError, match=r"'0\.0\.0\.0' can be reached from other machines"):
        hr.monitor.serve(replay, host="0.0.0.0")
    with pytest.raises(ValueError, match="at least one character"):
        hr.monitor.serve(replay, token="")
    with hr.monitor.serve(replay, host="0.0.0.0", token="s3cret") as monitor:
        assert get(monitor, "/health").status == 200


@pytest.mark.parametrize("wrong", [3, hr.Replay, None, {"a": 3}])
def test_other_objects_are_refused(wrong):
    with pytest.raises(TypeError, match="replay: expected a Replay"):
        hr.monitor.serve(wrong)


def test_several_replays_have_names_of_their_own(replay):
    with hr.Replay(SIGNATURE, [hr.Table.queue("q", 9)]) as second:
        with hr.monitor.serve({"demo": replay, "agent": second}) as monitor:
            assert list(get(monitor, "/api/statistics").json["replays"]) == ["demo", "agent"]
    with pytest.raises(ValueError, match="at least one"):
        hr.monitor.serve({})
    with pytest.raises(ValueError, match="names"):
        hr.monitor.serve({"\ud800": replay})


def test_a_server_with_its_replays_and_queues(replay):
    with (
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"r": replay, NASTY: queue}) as server,
        hr.monitor.serve(server) as monitor,
    ):
        found = get(monitor, "/api/statistics").json
        assert (list(found["replays"]), list(found["queues"])) == (["r"], [NASTY])
        assert found["server"]["connections"] == 0
        assert get(monitor, f"/api/item?{query(replay='r', table=NASTY)}").json["rows"] == 2
        assert get(monitor, f"/api/item?{query(replay=NASTY, table=NASTY)}").status == 404
    with hr.monitor.serve(server) as monitor:
        found = get(monitor, "/api/statistics").json
    assert (found["replays"]["r"]["state"], found["server"]) == ("closed", None)


def test_queues_beside_replays(replay):
    with hr.BatchQueue({"x": 0}, 2) as queue, hr.monitor.serve({"r": replay, "q": queue}) as monitor:
        found = get(monitor, "/api/statistics").json
    assert (list(found["replays"]), list(found["queues"]), found["server"]) == (["r"], ["q"], None)


def test_a_port_in_use_is_an_error_at_once(replay):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError):
            hr.monitor.serve(replay, port=taken.getsockname()[1])


def test_a_replay_whose_statistics_fail_leaves_nothing_behind():
    class Broken:
        table = None

        def statistics(self):
            raise ZeroDivisionError("odd")

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ZeroDivisionError):
        hr.monitor.serve(Broken(), port=port)
    socket.create_server(("127.0.0.1", port)).close()
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-monitor")]


def test_close_frees_the_port_and_can_be_repeated(replay):
    monitor = hr.monitor.serve(replay)
    port = int(monitor.url.rstrip("/").rpartition(":")[2])
    assert get(monitor, "/health").status == 200
    monitor.close()
    monitor.close()
    assert repr(monitor) == f"<Monitor at http://127.0.0.1:{port}/: closed>"
    with hr.monitor.serve(replay, port=port) as again:
        assert get(again, "/health").status == 200


def test_the_extra_is_named_where_a_library_is_missing(replay, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r'pip install "headrace\[server\]"'):
        hr.monitor.serve(replay)


def test_a_bad_request_prints_nothing():
    # In a process of its own: pytest sets up logging.
    script = (
        "import socket, headrace as hr\n"
        "signature, queue = hr.Signature.like({'n': 0}), hr.Table.queue('q', 1)\n"
        "with hr.Replay(signature, [queue]) as replay, hr.monitor.serve(replay, port=0) as page:\n"
        "    port = int(page.url.rsplit(':', 1)[1].strip('/'))\n"
        "    with socket.create_connection(('127.0.0.1', port)) as connection:\n"
        "        connection.sendall(b'\\x16\\x03\\x01 this is not HTTP\\r\\n\\r\\n')\n"
        "        print(connection.recv(99).split(b'\\r')[0].decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True
    )
    assert (done.stdout, done.stderr) == ("HTTP/1.1 400 Bad Request\n", "")
