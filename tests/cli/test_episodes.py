"""Returns and lengths of episodes, from rows in any mixture."""

import csv

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.episodes import EpisodeLog, spreads, write_csv


def arrays(rows):
    ids, rewards, terminated, truncated = zip(*rows, strict=True)
    return np.array(ids), np.array(rewards, np.float32), np.array(terminated), np.array(truncated)


@st.composite
def histories(draw):
    """Rows (episode, reward, terminated, truncated) of three lanes, mixed, and where the calls are cut."""
    lanes, next_id, rows = [None, None, None], 0, []
    for _ in range(draw(st.integers(1, 60))):
        lane = draw(st.integers(0, 2))
        if lanes[lane] is None:
            lanes[lane], next_id = next_id, next_id + 1
        end = draw(st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)]))
        rows.append((lanes[lane], float(draw(st.integers(-5, 5))), *end))
        if any(end):
            lanes[lane] = None
    return rows, sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))


@given(histories())
def test_the_log_is_what_a_plain_loop_finds(history):
    rows, cuts = history
    log = EpisodeLog()
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        if start < stop:
            log.add(*arrays(rows[start:stop]))
    expected, sums, lengths = [], {}, {}
    for at, (episode, reward, terminated, truncated) in enumerate(rows):
        sums[episode] = sums.get(episode, 0.0) + reward
        lengths[episode] = lengths.get(episode, 0) + 1
        if terminated or truncated:
            expected.append((episode, sums[episode], lengths[episode], terminated, truncated, at + 1))
    found = [(e.episode_id, e.return_, e.length, e.terminated, e.truncated, e.frame) for e in log.ended]
    assert found == expected
    assert log.frames == len(rows)


def test_the_mean_needs_enough_episodes():
    log = EpisodeLog()
    log.add(*arrays([(0, 1.0, True, False), (1, 2.0, True, False), (2, 6.0, False, True)]))
    assert log.mean_return(4) is None
    assert log.mean_return(3) == 3.0
    assert log.mean_return(2) == 4.0


def test_spreads_and_csv(tmp_path):
    log = EpisodeLog()
    log.add(*arrays([(0, 1.0, False, False), (1, 2.0, True, False), (0, 5.0, False, True)]))
    assert spreads(log.ended) == {
        "return": {"mean": 4.0, "min": 2.0, "max": 6.0},
        "length": {"mean": 1.5, "min": 1, "max": 2},
    }
    write_csv(tmp_path / "e.csv", log.ended)
    with (tmp_path / "e.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "episode_id": "1", "return": "2.0", "length": "1", "terminated": "True", "truncated": "False", "frame": "2",
    }  # fmt: skip
    assert (second["episode_id"], second["return"]) == ("0", "6.0")


def test_nothing_ended():
    assert spreads([])["length"] == {"mean": None, "min": None, "max": None}
    assert EpisodeLog().mean_return(1) is None
