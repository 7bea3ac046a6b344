"""Draws the pictures of docs/alignment.md: `python docs/pictures/alignment.py`.

One environment runs an episode of two transitions (o) and then one of four (p), in each autoreset mode. The upper line
is what its calls return, the lower one is the rows that a step writer has stored, as they are read from the replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

import numpy as np

import headrace as hr

Mode = Literal["disabled", "same_step", "next_step"]
MODES: tuple[Mode, ...] = ("disabled", "same_step", "next_step")
CALLS = 5
FIRST, SECOND, FINAL, IGNORED = "#9ecae1", "#a1d99b", "#fdd0a2", "#f2f2f2"
INK, PALE = "#333333", "#888888"
WIDTH = 1.5


class Call(NamedTuple):
    """The action given to one call of `step`, and the values that it returned."""

    action: str
    observation: str
    reward: float
    ended: bool
    final_observation: str


def main() -> None:
    """Writes one SVG for each mode, and those of the final row and the look-ahead, beside this file."""
    # Text stays text, and nothing depends on the day or the run: a picture changes when its rows do.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})
    figures = {f"autoreset_{mode}": autoreset(mode) for mode in MODES}
    for name, figure in (figures | {"final_row": final_row(), "lookahead": lookahead()}).items():
        path = Path(__file__).parent / f"alignment_{name}.svg"
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def run(mode: Mode) -> tuple[list[Call], list[tuple[str, str, bool]]]:
    """Steps the environment beside another one. Returns its calls, and its rows as (observation, action, is final)."""
    envs = hr.testing.counter_vector_env([[2, 4], [9]], mode)
    step = {"observation": np.zeros(3, np.int64), "action": 0, "reward": np.float32(0)}
    step |= {"terminated": False, "truncated": False}
    replay = hr.Replay(hr.Signature.like(step), [hr.Table.queue("rows", 100)])
    calls = []
    with replay, hr.TransitionWriter(replay, "rows", lanes=2, autoreset=mode) as writer:
        observation, _ = envs.reset()
        writer.add_first(observation)
        for number in range(CALLS):
            action = np.array([number, number])
            after, reward, terminated, truncated, info = envs.step(action)
            final = info.get("final_obs")
            if final is not None:  # an environment that did not end has None there
                final = np.stack([after[lane] if last is None else last for lane, last in enumerate(final)])
            ended = bool(terminated[0])
            ignored = mode == "next_step" and bool(calls and calls[-1].ended)
            acted = "(ignored)" if ignored else _name("a", "b", observation[0])
            calls.append(
                Call(
                    acted,
                    _shown(after[0]),
                    reward[0],
                    ended,
                    _shown(final[0]) if final is not None and ended else "",
                )
            )
            writer.add(action, reward, terminated, truncated, after, final_observation=final)
            observation = after
            if mode == "disabled" and ended:
                observation, _ = envs.reset(options={"reset_mask": terminated})
                writer.add_first(observation, mask=terminated)
        writer.flush()
        batch = replay.sample("rows", len(replay.table("rows")), views=writer.views)
    rows = []
    for before, after, ended in zip(
        batch["observation"], batch["next_observation"], batch["terminated"], strict=True
    ):
        if before[0] == 1:
            continue
        rows.append((_shown(before), _name("a", "b", before), False))
        if ended:
            rows.append((_shown(after), "", True))
    return calls, rows


def autoreset(mode: Mode) -> Figure:
    """The calls above, the stored rows below."""
    calls, rows = run(mode)
    figure, axes = _canvas(max(len(rows), CALLS), -0.5, 2.9)
    lowest = -0.3 if mode == "same_step" else 0.3
    for place, call in enumerate(calls):
        x = place * WIDTH
        axes.text(x + WIDTH / 2, 2.55, f"call {place + 1}", ha="center", color=PALE)
        color = IGNORED if call.action == "(ignored)" else _color(call.action)
        _box(axes, x, 1.85, call.action, color)
        _box(axes, x, 1.25, call.observation + (" T" if call.ended else ""), _color(call.observation))
        if call.final_observation:
            _box(axes, x, 0.65, call.final_observation, FINAL)
    _labels(axes, {2.05: "action given", 1.45: "returned"})
    if mode == "same_step":
        _labels(axes, {0.85: "final_obs"})
    _rows(axes, lowest, rows)
    return figure


def final_row() -> Figure:
    """One episode, its rows, and the transitions that a view makes of them."""
    _, rows = run("disabled")
    rows = rows[: next(place for place, row in enumerate(rows) if row[2]) + 1]
    figure, axes = _canvas(len(rows), 0.4, 2.6)
    _rows(axes, 2.0, rows)
    for place, (observation, action, is_final) in enumerate(rows):
        if not is_final:
            y = 1.25 - 0.7 * place
            _box(axes, place * WIDTH, y, f"{observation} {action}", FIRST)
            after = rows[place + 1]
            _box(axes, (place + 1) * WIDTH, y, f"next: {after[0]}", FINAL if after[2] else FIRST)
            _labels(axes, {y + 0.2: f"transition {place}"})
    return figure


def lookahead() -> Figure:
    """Which rows are stored when the item of row 0 is made, for three values of `lookahead`."""
    step = {"observation": 0}
    figure, axes = _canvas(5, 0.5, 2.8)
    for line, ahead in enumerate((0, 1, 3)):
        rule = hr.ItemRule("items", length=1, lookahead=ahead)
        with hr.Replay(hr.Signature.like(step), [hr.Table.queue("items", 9)]) as replay:
            with replay.writer(items=[rule]) as writer:
                stored = 0
                while not len(replay.table("items")):
                    writer.append({"observation": stored})
                    stored += 1
        y = 2.2 - 0.8 * line
        _labels(axes, {y + 0.2: f"lookahead={ahead}"})
        for row in range(stored):
            _box(axes, row * WIDTH, y, "item" if row == 0 else f"row {row}", FINAL if row == 0 else FIRST)
        axes.text(stored * WIDTH + 0.2, y + 0.22, "made now", va="center", color=PALE)
    return figure


def _canvas(columns: int, low: float, high: float) -> tuple[Figure, Any]:
    left = 2.6
    figure = Figure(figsize=(0.5 * (columns * WIDTH + left + 0.4), 0.5 * (high - low)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-left, columns * WIDTH + 0.4), ylim=(low, high))
    axes.axis("off")
    return figure, axes


def _rows(axes: Any, y: float, rows: list[tuple[str, str, bool]]) -> None:
    _labels(axes, {y + 0.2: "rows stored"})
    for place, (observation, action, is_final) in enumerate(rows):
        text = f"{observation} final" if is_final else f"{observation} {action}"
        _box(axes, place * WIDTH, y, text, FINAL if is_final else _color(observation))


def _labels(axes: Any, labels: dict[float, str]) -> None:
    for y, text in labels.items():
        axes.text(-0.15, y, text, ha="right", va="center", color=PALE)


def _shown(observation: Any) -> str:
    return _name("o", "p", observation)


def _name(first: str, second: str, observation: Any) -> str:
    """The counter's observation is (copy, episode, step)."""
    return f"{(first, second)[int(observation[1])]}{int(observation[2])}"


def _color(name: str) -> str:
    return FIRST if name[0] in "oa" else SECOND


def _box(axes: Any, x: float, y: float, text: str, color: str) -> None:
    axes.add_patch(Rectangle((x, y), WIDTH - 0.1, 0.45, facecolor=color, edgecolor=INK, linewidth=0.8))
    axes.text(x + WIDTH / 2 - 0.05, y + 0.21, text, ha="center", va="center", color=INK)


if __name__ == "__main__":
    main()
