"""Description of a LeRobot dataset: `meta/info.json` and its tasks."""

# Rules: datasets G11

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.datasets.errors import dataset_errors, existing_file

INFO = Path("meta", "info.json")


def read_info(folder: Path) -> dict[str, Any]:
    """Reads `meta/info.json`.

    Raises:
        FileNotFoundError: it does not exist.
        DatasetError: it is not a JSON object with `features`.
    """
    file = existing_file(folder / INFO)
    with dataset_errors(file):
        info = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
            raise ValueError("expected an object with features, as LeRobot writes it")
    return info


def shapes_of(info: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each column that holds arrays of numbers."""
    return {
        name: tuple(feature["shape"])
        for name, feature in info["features"].items()
        if feature.get("dtype") not in ("image", "video", "string")
    }


def videos_of(info: dict[str, Any]) -> list[str]:
    """Returns the names of the features that are videos."""
    return [name for name, feature in info["features"].items() if feature.get("dtype") == "video"]


def read_tasks(folder: Path) -> list[str]:
    """Reads the text of each task, in the order of `task_index`; no tasks where there is no file of them.

    Raises:
        DatasetError: the file is damaged.
    """
    lines, table = folder / "meta" / "tasks.jsonl", folder / "meta" / "tasks.parquet"
    if lines.exists():
        with dataset_errors(lines):
            found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines() if line]
            return [task["task"] for task in sorted(found, key=lambda task: task["task_index"])]
    if table.exists():
        from headrace.datasets.arrow import parquet

        with dataset_errors(table):
            columns = parquet.read_table(table).to_pydict()
            numbers = columns.pop("task_index")
            # The text is the index of a pandas frame, whose name differs between versions.
            (texts,) = columns.values()
            return [text for _, text in sorted(zip(numbers, texts, strict=True))]
    return []
