"""`headrace collect --profile`: the table, the trace and the picture."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import main
from headrace.cli.collect.time_shares import PARTS, shares, show_table

EVENTS = [name for names in PARTS.values() for name in names]


@given(
    st.lists(
        st.tuples(st.sampled_from([*EVENTS, "rollout"]), st.integers(0, 3), st.integers(0, 4)), max_size=30
    ),
    st.integers(1, 7),
)
def test_shares_against_a_count_of_moments(pieces, bins):
    # Events one after the other with gaps, in whole microseconds: each belongs to bins moment by moment.
    events, now = [], 0
    for name, gap, duration in pieces:
        events.append({"name": name, "ts": float(now + gap), "dur": float(duration)})
        now += gap + duration
    edges = np.arange(bins + 1) * 5.0
    found = shares(events[::-1], edges)
    for part, names in PARTS.items():
        moments = np.zeros(bins * 5)
        for event in events:
            if event["name"] in names:
                moments[int(event["ts"]) : int(event["ts"] + event["dur"])] = 1
        np.testing.assert_allclose(found[part], moments.reshape(bins, 5).mean(1), atol=1e-12)


def test_the_table(capsys):
    show_table({"environment": 3.0, "policy": 1.0, "write": 0.0, "wait": 0.0}, 1000)
    assert "3.00  75.00   3000.00" in capsys.readouterr().out
    show_table(dict.fromkeys(PARTS, 0.0), 0)
    assert capsys.readouterr().out.count("-") >= 8


@pytest.mark.parametrize("workers", [0, 1])
def test_profile_writes_trace_and_picture(tmp_path, workers):
    arguments = ["collect", "CartPole-v1", "--steps=512", "--num-envs=2", f"--workers={workers}", "--profile"]
    done = CliRunner().invoke(main, [*arguments, f"--out={tmp_path}"])
    assert done.exit_code == 0, done.output
    assert "where the time went" in done.output
    files = ["episodes.csv", "episodes.npz", "profile.png", "profile_0.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*files, "run.json"]
    assert all(name in done.output for name in files)
    names = [event["name"] for event in json.loads((tmp_path / "profile_0.json").read_text())["traceEvents"]]
    assert names.count("rollout") == 3
    assert names.count("env_step") == 3 * 64
    assert (tmp_path / "profile.png").stat().st_size > 1000
    again = CliRunner().invoke(main, [*arguments, f"--out={tmp_path}"])
    assert again.exit_code == 1
    assert "profile_0.json" in again.output


def test_profile_without_a_folder_prints_the_table():
    arguments = ["collect", "CartPole-v1", "--steps=64", "--workers=0", "--profile"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "where the time went" in done.output
    done = CliRunner().invoke(main, [*arguments, "--json"])
    result = json.loads(done.output)
    assert list(result["time"]) == list(PARTS)
    assert result["files"] == []
    plain = CliRunner().invoke(main, [*arguments[:-1], "--json"])
    assert "time" not in json.loads(plain.output)
