"""The live page in a headless Chromium, where one is installed. `scripts/screenshots` takes pictures for the docs."""

import shutil
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest

import headrace as hr

SCRIPT = Path(__file__).parents[2] / "scripts" / "screenshots"
NASTY = "<img src=x onerror=alert(1)>&\"'😀"
IS_LIVE = "document.querySelector('#state.live')"
ANSWERED_ELSEWHERE = """
    performance.getEntriesByType('resource').map(each => each.name).filter(name => !name.startsWith(location.origin))
"""

pytestmark = [
    pytest.mark.skipif(
        not (shutil.which("chromium") or shutil.which("google-chrome")), reason="chromium is not installed"
    ),
    # It takes two processors some seconds to start; the tests beside it may have both.
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    loader = SourceFileLoader("screenshots", str(SCRIPT))
    module = module_from_spec(spec_from_loader("screenshots", loader))
    loader.exec_module(module)
    browser = module.Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def replay():
    step = {
        "observation": {"camera": np.zeros((12, 16, 3), np.uint8), "joints": np.zeros(3, np.float32)},
        "action": np.zeros(2, np.float32),
        "reward": np.float32(0),
        NASTY: 0,
    }
    ratio = hr.rate_limiters.SampleToInsertRatio(2, 3, 4)
    uniform = {"sampler": hr.selectors.Uniform(), "remover": hr.selectors.Fifo(), "max_size": 9}
    tables = [hr.Table(NASTY, rate_limiter=ratio, **uniform), hr.Table("empty", **uniform)]
    with hr.Replay(hr.Signature.like(step), tables) as replay:
        with replay.writer(items=[hr.ItemRule(NASTY, 4)]) as writer:
            for _ in range(7):
                writer.append(step)
        yield replay


def show(browser, url, width=1360):
    """Shows a page; an error of its scripts or of a request raises."""
    browser.show(url, width, 1, "light")
    assert browser.run("document.querySelectorAll('img[src=x]').length") == 0
    assert browser.run(ANSWERED_ELSEWHERE) == []


@contextmanager
def opened(browser, served, width=1360):
    """Serves a page, and shows it until the block ends."""
    with hr.monitor.serve(served) as monitor:
        show(browser, monitor.url, width)
        try:
            yield
        finally:
            browser.leave()


def look_inside(browser):
    browser.run("document.querySelector('.buttons').children[0].click()")
    browser.wait_for("document.querySelector('.look img')")
    return browser.run("document.querySelector('.look').innerText")


def test_a_replay_of_this_process_and_an_item_of_it(browser, replay):
    """Images are images, vectors plots, and names are texts whatever they look like."""
    with opened(browser, replay):
        text = browser.run("document.body.innerText")
        for part in (NASTY, "4 of 9 items", "samples/insert", "target 2", "Rate limiter", "empty"):
            assert part in text
        item = look_inside(browser)
        for part in (
            "priority 1",
            "rows 4",
            "observation/camera",
            "observation/joints",
            "action",
            "reward",
            NASTY,
        ):
            assert part in item
        assert browser.run("document.querySelectorAll('.look img').length") == 4
        assert browser.run("document.querySelectorAll('.look svg, .look canvas').length") >= 3
        assert browser.run("document.querySelectorAll('.problem:not([hidden])').length") == 0
    assert replay.table(NASTY).statistics().samples == 0


@pytest.mark.parametrize("width", [390, 320])
def test_nothing_is_wider_than_a_phone(browser, replay, width):
    with opened(browser, replay, width):
        look_inside(browser)
        assert browser.run("document.documentElement.scrollWidth") <= width


def test_a_server_with_its_queue_and_checkpoints(browser, replay, tmp_path):
    with (
        hr.BatchQueue({"x": 0}, 2) as queue,
        hr.Server({"robot": replay, NASTY: queue}, checkpoint=tmp_path) as server,
        hr.Client(server.address) as client,
    ):
        client.queue(NASTY).send({"x": 1})
        client.queue(NASTY).wait(20)
        server.checkpoint()
        with opened(browser, server):
            text = browser.run("document.body.innerText")
    for part in ("robot", NASTY, "server", "checkpoints 1", "clients 1", "samples that wait"):
        assert part.lower() in text.lower()


def test_a_page_whose_program_has_ended_says_so(browser, replay):
    with hr.monitor.serve(replay) as monitor:
        show(browser, monitor.url)
        # The requests of the page fail from the end of this block on, which Chromium logs as errors.
        browser.call("Log.disable")
    try:
        browser.wait_for(f"!({IS_LIVE})")
    finally:
        browser.leave()
        browser.call("Log.clear")
        browser.call("Log.enable")
