"""The cells of examples/dqn_notebook.ipynb, run in their order as a notebook runs them."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "dqn_notebook.ipynb"
STEPS = "STEPS = 5_000"


def run_cells(steps):
    """The names that the code cells leave behind, with so many steps of each environment."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert sum(STEPS in source for source in code) == 1
    names = {"__name__": "__main__"}
    for number, source in enumerate(code):
        short = source.replace(STEPS, f"STEPS = {steps}")
        exec(compile(short, f"{NOTEBOOK.name}[{number}]", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def no_windows(monkeypatch):
    """Figures are drawn, but not shown."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_the_learner_of_the_notebook_looks_one_step_further_with_each_target_network():
    """Three target networks, a hundred updates each: an upright pole is worth the rewards of three steps."""
    names = run_cells(steps=300)
    with torch.no_grad():
        values = names["net"](torch.zeros(1, 4)).numpy()
    np.testing.assert_allclose(values, 1 + 0.99 + 0.99**2, atol=0.4)
    assert len(names["losses"]) == 300
    assert names["left"].lines[0].get_ydata().tolist() == names["returns"]
    assert names["right"].lines[0].get_ydata().tolist() == names["losses"]


def test_two_runs_of_the_notebook_are_equal():
    first, second = run_cells(steps=40), run_cells(steps=40)
    assert first["losses"] == second["losses"]
    assert first["returns"] == second["returns"]
    assert first["batch"].info.keys.tolist() == second["batch"].info.keys.tolist()


def test_the_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
