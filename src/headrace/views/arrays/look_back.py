"""The window function for views that only look back from the newest rows of trajectories, with the copies it leads to.

A policy asks for these windows before each step, of a few trajectories: one call that finds and copies takes a fraction
of the time of `window.resolve` and the copies after it.
"""

# Rules: views V6, V7, V14

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.handoff import ask, leave, take
    from headrace.kernels.hints import move
    from headrace.kernels.kinds import Bool, Bytes, GivenBytes, GivenLongs, Int
    from headrace.store.copying import SHORT


def copy_back(
    column: GivenBytes,
    stride: Int,
    newest: GivenLongs,
    ages: GivenLongs,
    backs: GivenLongs,
    is_post: Bool,
    shows_nearest: Bool,
    fill: GivenBytes,
    out: Bytes,
) -> None:
    """Copies the rows that lie some rows before the newest ones of their trajectories, side by side.

    Args:
        column: uint8[rows * nbytes], not empty; may be a ring: a row below 0 counts from its end.
        stride: distance of two successive rows of a trajectory.
        newest: int64[M], the newest rows.
        ages: int64[M], how many rows of each trajectory precede its newest one.
        backs: int64[W], not negative: how many rows to look back.
        is_post: whether the newest row has no value yet.
        shows_nearest: whether the first value of a trajectory stands for rows before it, once it is known.
        fill: uint8[nbytes], stands for them otherwise.
        out: uint8[M * W * nbytes], written.
    """
    if out.shape[0] <= SHORT:
        _copy_back(column, stride, newest, ages, backs, is_post, shows_nearest, fill, out)
        return
    with cython.nogil:
        leave()
        _copy_back(column, stride, newest, ages, backs, is_post, shows_nearest, fill, out)
        ask()
    take()


def _copy_back(
    column: GivenBytes,
    stride: Int,
    newest: GivenLongs,
    ages: GivenLongs,
    backs: GivenLongs,
    is_post: Bool,
    shows_nearest: Bool,
    fill: GivenBytes,
    out: Bytes,
) -> None:
    nbytes: Int = fill.shape[0]
    rows: Int = column.shape[0] // nbytes
    place: Int = 0
    for index in range(newest.shape[0]):
        age: Int = ages[index]
        has_nearest: Bool = shows_nearest and not (is_post and age == 0)
        number: Int = 0
        while number < backs.shape[0]:
            back: Int = backs[number]
            count: Int = 1
            if back > age and not has_nearest:
                move(out, place, fill, 0, nbytes)
            else:
                row: Int = newest[index] - min(back, age) * stride
                if row < 0:
                    row += rows
                # Rows that follow each other are one copy: a stack of frames, but for the first of a trajectory.
                if stride == 1 and back <= age:
                    while (
                        number + count < backs.shape[0]
                        and backs[number + count] == back - count
                        and row + count < rows
                    ):
                        count += 1
                move(out, place, column, row * nbytes, count * nbytes)
            number += count
            place += count * nbytes
