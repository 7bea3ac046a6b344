"""Draws the curves of docs/examples.md: `python docs/pictures/examples.py [PROGRAM ...] [--seeds 0 1 2]`.

Each program that is named is run once for each seed, one after the other, and its progress lines replace its numbers in
`examples.json`. The picture is drawn from that file; without names nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

HERE = Path(__file__).parent
EXAMPLES, NUMBERS = HERE.parents[1] / "examples", HERE / "examples.json"
# "  2,000 steps: return  57.2": how far the program is, and how well it does.
PROGRESS = re.compile(r"^\s*([\d,]+) ([a-z]+)[:,] (?:the last \d+ )?[^\d-]*(-?[\d.]+)(%?)", re.MULTILINE)
COLUMNS, INK, LINE = 4, "#333333", "#3182bd"


def main() -> None:
    """Runs what is named, and draws what is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="files of examples/, without their ending")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    for program in options.programs:
        numbers = json.loads(NUMBERS.read_text())
        numbers[program] = {str(seed): run(program, seed) for seed in options.seeds}
        NUMBERS.write_text(text_of(numbers))
    # Text stays text, and nothing depends on the day: the picture changes when a number does.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 8})
    picture = draw(json.loads(NUMBERS.read_text()))
    picture.savefig(HERE / "examples.svg", metadata={"Date": None, "Creator": None})


def run(program: str, seed: int) -> dict[str, Any]:
    """Runs the program with its default arguments; its progress, and the processor time of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command(program, seed), check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**progress(done.stdout), "processor_seconds": round(seconds)}


def command(program: str, seed: int) -> list[str]:
    """Returns the command of a program. The cells of a notebook are run as one program."""
    notebook = EXAMPLES / f"{program}.ipynb"
    if not notebook.exists():
        return [sys.executable, str(EXAMPLES / f"{program}.py"), "--seed", str(seed)]
    cells = json.loads(notebook.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return [sys.executable, "-c", code.replace("SEED, NUM_ENVS = 0,", f"SEED, NUM_ENVS = {seed},")]


def progress(printed: str) -> dict[str, Any]:
    """Returns the numbers of the progress lines: a unit, the measured quantity, and its values `at` so many units."""
    found = list(PROGRESS.finditer(printed))
    if not found:
        raise ValueError(f"expected progress lines such as '2,000 steps: return 57.2', got {printed!r}")
    unit = statistics.mode(line[2] for line in found)  # Totals count in other units.
    lines = [line for line in found if line[2] == unit]
    measure = "percent" if lines[0][4] else "return" if "return" in lines[0][0] else "steps an episode"
    at = [int(line[1].replace(",", "")) for line in lines]
    return {"unit": unit, "measure": measure, "at": at, "result": [float(line[3]) for line in lines]}


def text_of(numbers: dict[str, Any]) -> str:
    """Returns JSON with one line for each seed."""
    programs = [
        f"{json.dumps(program)}: {{\n"
        + ",\n".join(f" {json.dumps(seed)}: {json.dumps(curve)}" for seed, curve in seeds.items())
        + "\n}"
        for program, seeds in sorted(numbers.items())
    ]
    return "{\n" + ",\n".join(programs) + "\n}\n"


def draw(numbers: dict[str, Any]) -> Figure:
    """Returns a figure with one small plot for each program."""
    rows = -(-len(numbers) // COLUMNS)
    figure = Figure(figsize=(2.6 * COLUMNS, 1.6 * rows), layout="constrained")
    axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axis in axes[len(numbers) :]:
        axis.remove()
    for axis, (program, seeds) in zip(axes, numbers.items(), strict=False):
        draw_program(axis, program, list(seeds.values()))
    return figure


def draw_program(axis: Axes, program: str, curves: list[dict[str, Any]]) -> None:
    """Draws one line for each seed."""
    for curve in curves:
        axis.plot(curve["at"], curve["result"], color=LINE, linewidth=1.2, alpha=0.8)
    axis.set_title(program, color=INK, fontsize=7)
    if curves[0]["measure"] == "percent":
        axis.set_ylim(0, 105)
    axis.set_xlabel(curves[0]["unit"], color=INK)
    axis.set_ylabel(curves[0]["measure"], color=INK)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.locator_params(axis="x", nbins=3)
    axis.locator_params(axis="y", nbins=4)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
