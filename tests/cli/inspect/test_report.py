"""The HTML report of `headrace inspect --html`."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.inspect import report, svg
from headrace.datasets import save_npz

VOID = {"meta", "img", "path"}


class Page(HTMLParser):
    """The elements of a page, whose tags must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def rows(self):
        return self.tags.count("tr")


def episode(steps, number, observations=None):
    end = np.arange(steps) == steps - 1
    return hr.Episode(
        np.arange(steps + 1.0) if observations is None else observations,
        np.arange(steps),
        np.full(steps, float(number)),
        end & (number % 2 == 0),
        end & (number % 2 == 1),
        id=f"<{number}>",
    )


def inspected(tmp_path, episodes, name="x", **options):
    source = save_npz(episodes, tmp_path / name, **options)
    done = CliRunner().invoke(main, ["inspect", str(source), "--html", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    return (tmp_path / "report.html").read_text()


def test_a_report_shows_episodes_columns_and_suspicions(tmp_path):
    page = Page(inspected(tmp_path, [episode(n + 1, n) for n in range(6)]))
    words = " ".join(page.texts)
    for word in (
        "observations",
        "float64[]",
        "terminated",
        "truncated",
        "return by episode",
        "length by episode",
    ):
        assert word in words
    assert "Nothing was found." in words
    assert page.tags.count("svg") == 2 + 5
    page = Page(inspected(tmp_path, [episode(3, 2), episode(3, 2)], "y"))
    assert "reward: 2 in all 6 rows" in page.texts
    assert (
        "1 of 2 episodes are copies of earlier ones; the first: episode 1 is the same as episode 0"
        in page.texts
    )


def test_nothing_is_fetched_and_nothing_is_run(tmp_path):
    text = inspected(
        tmp_path,
        [episode(3, n, {"<script>alert(1)": np.zeros((4, 8, 8), np.uint8)}) for n in range(2)],
        "<b>name",
        metadata={"<i>": "</table><img src=http://example.com>"},
    )
    page = Page(text)
    assert not {"script", "link", "b", "i", "iframe"} & set(page.tags)
    assert "://" not in re.sub(r"&lt;.*?&gt;", "", text)
    links = [value for name, value in page.attributes if name in ("src", "href")]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "<1>" in page.texts


def test_images_are_in_the_file(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (4, 400, 30, 3), dtype=np.uint8)
    text = inspected(tmp_path, [episode(3, n, images) for n in range(2)])
    found = re.findall(r"base64,([^\"]+)", text)
    assert len(found) == 2 * 4
    data = base64.b64decode(found[0])
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (10, 134)  # Every third pixel.


def test_of_many_episodes_some_are_shown(tmp_path, monkeypatch):
    episodes = [episode(1, n) for n in range(25)]
    every = inspected(tmp_path, episodes)
    monkeypatch.setattr(report, "MOST_LISTED", 10)
    monkeypatch.setattr(report, "MOST_DRAWN", 5)
    some = inspected(tmp_path, episodes, "y")
    assert Page(every).rows() - Page(some).rows() == 25 - 9
    assert "one episode of 3 is shown" in some
    assert "one episode of 5 is shown" in some
    assert "is shown" not in every


def test_returns_that_are_not_finite_are_left_out(tmp_path):
    bad = hr.Episode(np.arange(2.0), [0], [np.nan], [True], [False])
    text = inspected(tmp_path, [bad, episode(2, 2)])
    assert [plot.count("h0") for plot in re.findall(r'<svg class="plot".*?</svg>', text)] == [1, 2]
    page = Page(inspected(tmp_path, [bad], "y"))
    assert "return by episode" not in page.texts
    assert "length by episode" in page.texts


def test_points_lie_within_the_axes():
    drawn = svg.scatter({"end0": [(0.0, -5.0), (9.0, 12.5)], "end1": [(3.0, 1.0)], "end2": []})
    places = [tuple(map(float, each)) for each in re.findall(r"M([\d.]+) ([\d.]+)h0", drawn)]
    assert places == [(76.0, 152.0), (514.0, 6.0), (222.0, 101.9)]
    assert re.findall(r">([^<]+)</text>", drawn) == ["-5", "12.50", "0", "9"]
    assert "end2" not in drawn
    assert svg.scatter({"end0": [(0.0, 1.0)]}).count("h0") == 1


def test_every_count_is_visible():
    drawn = svg.bars(np.array([1, 0, 100_000]))
    assert re.findall(r"v(-[\d.]+)", drawn) == ["-1.0", "-28.0"]


@pytest.mark.parametrize("options", [["--html"], ["--png"]])
def test_wrong_use(tmp_path, options):
    source = save_npz([episode(3, 1)], tmp_path / "x")
    file = [*options, str(tmp_path)]
    assert CliRunner().invoke(main, ["inspect", str(source), *file]).exit_code == 2
    file = [*options, str(tmp_path / "x.file")]
    others = [["tcp://127.0.0.1:1"]] if options == ["--png"] else []
    for arguments in ([str(source), "--verify"], *others):
        done = CliRunner().invoke(main, ["inspect", *arguments, *file])
        assert (done.exit_code, options[0] in done.output) == (2, True)
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["inspect", str(source), "--html", str(tmp_path / "file" / "x.html")])
    assert (done.exit_code, "x.html" in done.output.replace("\n", "")) == (1, True)


# ---- servers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    step = {"<camera>": np.zeros(3), "reward": 1.0}
    tables = [hr.Table.prioritized(999, 1.0, name="<t>"), hr.Table.queue("empty", 9)]
    with (
        hr.Replay(hr.Signature.like(step), tables) as replay,
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"robot": replay, "samples": queue}) as server,
    ):
        with replay.writer(items=[hr.ItemRule("<t>", 1)]) as writer:
            for n in range(200):
                writer.append({"<camera>": np.array([n, n % 7, 0.0]), "reward": 1.0 + n})
        before = replay.statistics()
        yield server
        assert replay.statistics() == before


def test_a_report_on_a_server(server, tmp_path):
    path = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["inspect", server.address, "--html", str(path)])
    assert done.exit_code == 0, done.output
    assert "replay robot: 200 rows" in done.output
    page = Page(path.read_text())
    assert not {"script", "link", "camera", "t"} & set(page.tags)
    words = " ".join(page.texts)
    for word in (
        "replay robot: 200 rows",
        "<camera>",
        "float64[3]",
        "queue samples",
        "samples received",
        "empty",
    ):
        assert word in words
    assert "sample of <t>: reward: all positive" in page.texts
    # Priorities of the table, and the two arrays of a step.
    assert page.tags.count("svg") == 3


def test_a_report_on_a_server_without_items(tmp_path):
    path = tmp_path / "report.html"
    signature = hr.Signature.like({"reward": 1.0})
    with hr.Replay(signature, [hr.Table.queue("t", 9)]) as replay, hr.Server({"robot": replay}) as server:
        done = CliRunner().invoke(main, ["inspect", server.address, "--html", str(path), "--json"])
        assert done.exit_code == 0, done.output
    page = Page(path.read_text())
    assert "one step of robot" in page.texts
    assert page.tags.count("svg") == 0


def test_a_report_on_a_server_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "report.html"
    done = CliRunner().invoke(main, ["inspect", server.address, "--html", str(path)])
    assert (done.exit_code, str(path) in done.output) == (1, True)
