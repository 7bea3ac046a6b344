"""docs/habits.md: the code of every row runs, with the names of the page's first loop."""

import gc
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import headrace as hr

PAGE = (Path(__file__).parents[1] / "docs" / "habits.md").read_text(encoding="utf-8")
LIBRARIES = ("Stable-Baselines3", "TorchRL", "RLlib", "Reverb", "skrl", "Minari")
NEED_TORCH = re.compile(r'to="torch"|hr\.memories')


def rows():
    """The library and the code of each row."""
    for section in PAGE.split("\n## ")[1:]:
        library, _, text = section.partition("\n")
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if (
                line.startswith("|")
                and len(cells) == 3
                and not set(line) <= set("|- ")
                and cells[1] != "here"
            ):
                yield library, cells[1]


ROWS = list(rows())


class RandomPolicy:
    def __init__(self, observation_space, action_space, config=None):
        self.action_space = action_space

    def compute_actions(self, batch, **_):
        return np.array([self.action_space.sample() for _ in range(len(batch["observation"]))]), [], {}


@pytest.fixture
def loop():
    """The program of the page."""
    first = PAGE.split("```")[1]
    program = "\n".join(line[4:] for line in first.splitlines() if line.startswith((">>> ", "... ")))
    names = {"np": np}
    exec(program, names)
    names["policy"] = RandomPolicy(names["envs"].single_observation_space, names["envs"].single_action_space)
    # One more step, which is not written yet.
    step = names["envs"].step(names["actions"])
    names |= dict(zip(("next_obs", "rewards", "terminated", "truncated", "infos"), step, strict=True))
    yield names
    names["writer"].reset()
    names["writer"].close()
    names["replay"].close()
    names["envs"].close()
    gc.collect()


def test_every_library_has_rows():
    assert {library for library, _ in ROWS} == set(LIBRARIES)
    assert min(sum(library == each for each, _ in ROWS) for library in LIBRARIES) >= 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "code"), ROWS, ids=[f"{library}-{code[:40]}" for library, code in ROWS])
def test_the_code_of_a_row_runs(library, code, loop, tmp_path):
    if NEED_TORCH.search(code):
        pytest.importorskip("torch")
    assert code.startswith("`"), "the cell is code"
    *statements, last = code.strip("`").split("; ")
    names = {**loop, "folder": tmp_path}
    for statement in statements:
        exec(statement, names)
    found = eval(last, names)
    for close in ("close", "stop"):
        if isinstance(found, hr.Replay | hr.StepWriter | hr.RolloutWorker | hr.Server) and hasattr(
            found, close
        ):
            getattr(found, close)()


def test_the_vector_environment_resets_itself_as_the_page_says(loop):
    assert loop["envs"].metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
