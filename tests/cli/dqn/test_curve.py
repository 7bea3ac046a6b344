"""The picture of the learning curve."""

import pytest

from headrace.cli.dqn import curve
from headrace.cli.episodes import EndedEpisode

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("count", [0, 3, 50])
def test_a_png_is_drawn_for_any_number_of_episodes(tmp_path, count):
    episodes = [EndedEpisode(i, float(i), 1, True, False, 10 * i) for i in range(count)]
    curve.draw(tmp_path / "c.png", "title", episodes, 20, goal=475.0)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
