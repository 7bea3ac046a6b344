"""The examples of chunks and of hindsight, in short."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_bit_flipping_with_hindsight(capsys):
    """It runs, and goals that were reached are among those that it learns from."""
    success = runpy.run_path(str(EXAMPLES / "her_bit_flipping.py"))["main"](
        ["--bits", "4", "--episodes", "128"]
    )
    assert 0 <= success <= 1
    relabelled, rewarded = map(
        int, re.search(r"(\d+) transitions with goals.*, (\d+) of them", capsys.readouterr().out).groups()
    )
    assert 0 < rewarded < relabelled


def test_bit_flipping_without_hindsight(capsys):
    main = runpy.run_path(str(EXAMPLES / "her_bit_flipping.py"))["main"]
    assert 0 <= main(["--bits", "4", "--episodes", "32", "--no-hindsight"]) <= 1
    assert "0 transitions with goals of hindsight" in capsys.readouterr().out


def test_chunks_with_burn_in(capsys):
    assert 0 <= runpy.run_path(str(EXAMPLES / "r2d2_sequences.py"))["main"](["--steps", "60"]) <= 1
    assert "of the corridors end rightly" in capsys.readouterr().out
