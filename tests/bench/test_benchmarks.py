"""Every benchmark runs, in a tiny form, and its checks of the batches hold (performance P1, P2, P6)."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import __main__ as command  # noqa: E402
from bench import measure, others, peers  # noqa: E402
from bench.measure import Contest, Goal, Plan, Row, Spread  # noqa: E402
from bench.pace import Pace  # noqa: E402

TINY = Plan(rounds=2, seconds=0.002, divide=100)
# Processes of its own for each figure.
SLOW = (
    "import",
    "cold_start",
    "footprint",
    "collect/asynchronous",
    "collect/synchronous",
    "deaths/",
    "server/",
    "compression/",
)
# One of each kind: the others differ in their sizes.
SERVER = (
    "server/queue 20 B, 1 client, unix",
    "server/queue, written to sampled by the client, unix, one processor",
    "server/queue, written to sampled by the learner, tcp, one processor",
    "server/replay small, tcp",
    "compression/noise, bytes",
    "compression/ping beside poisson",
)
# Its workers are those of the case without a policy, its policies those of the synchronous one.
PARTS_RUN = ("collect/asynchronous, 2 workers, 2x64",)
CASES = {
    case.name: case
    for case in command.all_cases()
    if case.name not in (*others.MODULES, *PARTS_RUN)
    and (case.name in SERVER or not case.name.startswith(("server/", "compression/")))
}


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(SLOW)])
def test_case_runs(name):
    rows = list(CASES[name].rows(TINY))
    assert rows
    for row in rows:
        assert row.value.low <= row.value.median <= row.value.high
        assert row.value.low > 0
        assert row.is_reached in (True, False)
        json.dumps(row.as_dict())


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(SLOW)])
@pytest.mark.timeout(120)
def test_case_with_processes_runs(name):
    (row,) = CASES[name].rows(TINY)
    json.dumps(row.as_dict())
    assert row.value.median > 0


def test_sides_take_turns():
    """P1: A B A B."""
    turns = []
    measure.hold(
        Contest(lambda n: turns.append("A"), limit=lambda n: turns.append("B")), Plan(rounds=5, seconds=0)
    )
    assert "".join(turns)[-10:] == "AB" * 5


def test_a_goal_that_is_a_rate_keeps_the_pace_of_the_machine():
    """P1: an absolute time means nothing by itself."""
    paces = iter([0.25, 0.75, 1.0, 0.5, 0.25, 0.25])
    row = measure.hold(Contest(lambda n: None), Plan(rounds=3, seconds=0.001), lambda: next(paces))
    assert vars(row.pace) == {"median": 0.5, "low": 0.25, "high": 0.75}
    row = Row("", "x/s", Spread.of([100.0]), at_pace=Spread.of([150.0, 200.0, 400.0]))
    for goal, reached in [
        (Goal(least=200), True),
        (Goal(least=201), False),
        (Goal(ratio=0.5), None),
        (None, None),
    ]:
        row.goal = goal
        assert row.is_reached_at_pace is reached
    row.goal, row.at_pace = Goal(least=1), None
    assert row.is_reached_at_pace is None


def test_a_rate_at_pace_is_that_of_a_machine_as_fast_as_the_goals():
    slow = measure.hold(Contest(lambda n: None), Plan(rounds=5, seconds=0.001), lambda: 0.5)
    assert slow.at_pace == Spread(2 * slow.value.median, 2 * slow.value.low, 2 * slow.value.high)
    assert 0 < Pace()() < 100


def test_the_pace_is_taken_outside_what_is_made_ready():
    """Workers that were emptied of what they had done ahead must not get ahead again before the clock starts."""
    seen = []

    def pace():
        seen.append("pace")
        return 1.0

    contest = Contest(lambda n: seen.append("ours"), before=lambda: seen.append("before"))
    measure.hold(contest, Plan(rounds=2, seconds=0), pace)
    assert seen[-8:] == ["pace", "before", "ours", "pace"] * 2


def test_wrong_result_is_no_figure():
    """P2: what a side returns is checked after each turn."""

    def verify(result):
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        measure.hold(Contest(lambda n: None, verify=verify), Plan(rounds=1, seconds=0))


def test_unsteady_limit_says_so():
    """P1: more than 15 % between rounds."""
    row = Row("", "x", Spread.of([1.0]), limit=Spread.of([1.0, 1.0, 1.2]))
    measure.finish(row)
    assert row.notes == ["the limit swings by 20%"]
    assert row.ratio == 1.0


@pytest.mark.parametrize(
    ("goal", "value", "ratio", "reached"),
    [
        (Goal(least=2), 2, None, True),
        (Goal(least=2), 1, None, False),
        (Goal(most=2), 3, None, False),
        (Goal(ratio=0.5), 100, 0.4, False),
        (Goal(ratio=0.5), 100, 0.5, True),
    ],
)
def test_goals(goal, value, ratio, reached):
    assert goal.is_reached(value, ratio) is reached


def test_json_has_a_header_and_one_line_a_row(tmp_path, monkeypatch):
    """P6."""
    monkeypatch.setattr(command, "Plan", lambda peers: TINY)
    path = tmp_path / "figures.json"
    result = CliRunner().invoke(command.main, ["append/one", "--json", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    header, row = (json.loads(line) for line in path.read_text().splitlines())
    assert {"cores", "numpy", "python", "date"} <= header["header"].keys()
    assert row["case"] == "append/one"
    assert row["limit"]["median"] > 0


def test_unknown_name_is_wrong_use():
    assert CliRunner().invoke(command.main, ["nonsense"]).exit_code == 2


def test_peers_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setattr(peers, "_MODULES", {"nobody_has_this": "nobody_has_this.adapter"})
    assert peers.missing() == ["nobody_has_this"]
    assert peers.sides("append_one", Plan(peers=True), size=10) == {}
