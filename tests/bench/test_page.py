"""Tables of figures for the page of bench/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.measure import Goal, Row, Spread
from bench.page import tables
from bench.report import Report


def written(path, *rows):
    report = Report({"machine": "small"}, str(path))
    for row in rows:
        report.add(row)
    return str(path)


def test_a_table_for_each_topic_with_the_readings_of_other_runs(tmp_path):
    append = {"unit": "steps/s", "limit_name": "plain ring", "goal": Goal(ratio=0.4)}
    one = Row("append/one", value=Spread(2e3, 1e3, 3e3), limit=Spread(4e3, 4e3, 4e3), ratio=0.5, **append)
    again = Row("append/one", value=Spread(1e3, 1e3, 1e3), limit=Spread(4e3, 4e3, 4e3), ratio=0.25, **append)
    died = Row("deaths/kill", unit="s", value=Spread(3.0, 3.0, 3.0), goal=Goal(most=2.0))
    first = written(tmp_path / "first", one, {"name": "memories", "calls": 3.0}, died)
    lines = tables(first, written(tmp_path / "other", again)).splitlines()
    assert [line for line in lines if line.startswith("**")] == ["**append**", "**deaths**"]
    assert [line for line in lines if line.startswith(("| append/", "| deaths/"))] == [
        "| append/one | 2 k (1 k to 3 k) steps/s | plain ring 4 k | 0.50 | 0.25 | >= 0.40 of limit | reached |",
        "| deaths/kill | 3 (3 to 3) s |  |  |  | <= 2 | missed |",
    ]
