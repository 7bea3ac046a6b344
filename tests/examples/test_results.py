"""docs/examples.md has a row of results for each program, and the numbers of its curve."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
PROGRAMS = sorted(path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".py", ".ipynb"})
NOTHING_LEARNT = {"atari_frames.py"}  # It measures memory.
NUMBERS = json.loads((PICTURES / "examples.json").read_text())


@pytest.fixture(scope="module")
def pictures():
    """docs/pictures/examples.py as a module."""
    spec = importlib.util.spec_from_file_location("pictures_examples", PICTURES / "examples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(heading):
    """The table below a heading of the page: for each program its cells."""
    page = (ROOT / "docs" / "examples.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", section, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {name: cells.split(" | ") for name, cells in found}


@pytest.mark.parametrize("heading", ["Programs", "Results"])
def test_each_table_has_a_row_for_each_program(heading):
    assert sorted(rows_of(heading)) == PROGRAMS


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NOTHING_LEARNT])
def test_a_row_tells_the_last_result_of_each_seed_and_the_time(name):
    _, _, result, seconds, curve = rows_of("Results")[name]
    seeds = NUMBERS[Path(name).stem]
    lasts = [f"{measured['result'][-1]:.0f}" for measured in seeds.values()]
    lasts = lasts[:1] if len(set(lasts)) == 1 else lasts  # Equal results are told once.
    assert re.search(rf"(?<![\d-]){', '.join(lasts)}(?!\d)", result.replace(" and ", ", "))
    assert ("seeds " + ", ".join(seeds) in result) is (len(seeds) > 1)
    assert seconds == f"{max(measured['processor_seconds'] for measured in seeds.values())} s"
    assert curve == "[curve](pictures/examples.svg)"


def test_the_picture_has_a_curve_of_each_program_that_learns():
    picture = (PICTURES / "examples.svg").read_text()
    drawn = {name for name in NUMBERS if f">{name}</text>" in picture}
    assert drawn == {Path(name).stem for name in PROGRAMS if name not in NOTHING_LEARNT} == set(NUMBERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_takes_a_seed(name):
    program = (ROOT / "examples" / name).read_text()
    assert ('"--seed"' if name.endswith(".py") else "SEED, NUM_ENVS = 0,") in program


@pytest.mark.parametrize(
    ("line", "unit", "measure", "result"),
    [
        ("  2,000 steps: return -57.2", "steps", "return", -57.2),
        ("  2,000 frames, episodes of 180.5 steps", "frames", "steps an episode", 180.5),
        ("  2,000 steps: the last 20 episodes return  31.0", "steps", "return", 31.0),
        ("  2,000 updates:  45% of the goals are reached", "updates", "percent", 45.0),
        ("  2,000 batches: return  18.0, lag 1.0", "batches", "return", 18.0),
    ],
)
def test_numbers_of_a_progress_line(pictures, line, unit, measure, result):
    printed = f"20 episodes, 10000 steps\n{line}\n{line.replace('2,000', '4000')}\n"
    printed += "9600 rollouts, 9600 learnt from\nreturn 7.0 after 4,000 steps\n"
    assert pictures.progress(printed) == {
        "unit": unit,
        "measure": measure,
        "at": [2000, 4000],
        "result": [result, result],
    }


def test_a_program_without_progress_lines_is_an_error(pictures):
    with pytest.raises(ValueError, match="expected progress lines such as"):
        pictures.progress("done\n")


def test_a_notebook_is_run_as_one_program_with_the_seed(pictures):
    *_, code = pictures.command("dqn_notebook", 3)
    compile(code, "cells", "exec")
    assert "SEED, NUM_ENVS = 3, 4" in code
    assert pictures.command("sac_jax", 3)[-2:] == ["--seed", "3"]


def test_a_plot_has_a_line_for_each_seed(pictures):
    curve = {"unit": "steps", "measure": "return", "at": [1, 2], "result": [3.0, 4.0]}
    figure = pictures.draw({"one": {"0": curve, "1": curve}, "two": {"0": curve}})
    assert [axis.get_title() for axis in figure.axes] == ["one", "two"]
    assert [len(axis.lines) for axis in figure.axes] == [2, 1]
