"""The same DQN with three replay buffers: the lines that a user writes."""

import gc
from pathlib import Path

import pytest

import bench.lines
from bench.lines import count_lines

PROGRAMS = Path(bench.lines.__file__).parent


def run(name, steps):
    """Runs a program for fewer steps; returns its names."""
    source = (PROGRAMS / name).read_text(encoding="utf-8")
    assert "STEPS, BATCH, GAMMA = 50_000," in source
    names = {"__name__": "__main__"}
    exec(compile(source.replace("50_000, 128, 0.99", f"{steps}, 32, 0.99"), name, "exec"), names)
    return names


def test_lines_are_counted_without_imports_and_text(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        '"""Two\nlines."""\n\nimport os\nfrom a import (\n    b,\n)\n# No.\nx = [\n    1,\n]\nprint(x)\n'
    )
    assert count_lines(program) == 4


def test_a_plain_loop_takes_fewest_lines_here():
    ours, *others = (count_lines(PROGRAMS / f"dqn_{name}.py") for name in ("headrace", "sb3", "torchrl"))
    assert ours <= 29
    assert ours < min(others)


def test_our_program_learns_from_every_transition():
    torch = pytest.importorskip("torch")
    names = run("dqn_headrace.py", 1200)
    writer, replay = names["writer"], names["replay"]
    episodes = writer.statistics().episodes
    writer.close()
    # In the mode next_step a call that resets a lane is no transition of it; the last call may have ended some.
    resets = 150 * 8 - len(replay.table("replay"))
    assert episodes > 10
    assert episodes - 8 <= resets <= episodes
    assert torch.isfinite(names["loss"])
    replay.close()
    names.clear()
    gc.collect()
