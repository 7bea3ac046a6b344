"""The short form of examples/atari_frames.py."""

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("ale_py")
pytest.importorskip("cv2")


def test_a_step_takes_an_eighth_of_a_buffer_of_stacks(example, capsys):
    factor = example("atari_frames").main(steps=800)
    assert factor > 7.5
    told = capsys.readouterr().out
    assert "observation       uint8    [32, 4, 84, 84]" in told
    assert "pair              uint8    [32, 20, 2, 84, 84]" in told


def test_stacks_are_the_frames_before_and_repeat_the_first(example):
    views = {
        "frame": hr.View("observation"),
        "stack": hr.View("observation", shift="-3:0", fill="edge"),
        "t": hr.View(),
    }
    with example("atari_frames").collect(1200, seed=0) as replay:
        data = replay.sample("windows", 64, views=views).data
    starts = 0
    for frames, stacks, t in zip(data["frame"], data["stack"], data["t"], strict=True):
        for row in range(20):
            # Frames before the window are not in it; those before the episode are its first.
            wanted = [max(row - back, row - int(t[row])) for back in (3, 2, 1, 0)]
            if wanted[0] >= 0:
                np.testing.assert_array_equal(stacks[row], frames[wanted])
                starts += int(t[row]) < 3
    assert starts > 0
