"""Run by `bench.footprint`: fills one replay, tells how much this process has grown, and ends."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import headrace as hr
from bench.frames import fill_frames, frame_signature
from bench.steps import LANES, fill, small_signature, table


def main(what: str, steps: int) -> None:
    _fill(_replay(what, 5_000), what, 5_000).close()  # Kernels are loaded before the baseline is read.
    gc.collect()
    before = _resident()
    replay = _fill(_replay(what, steps), what, steps)
    grown = _resident() - before
    told = replay.statistics()
    items = told.tables["t"]
    print(
        json.dumps(
            {
                "steps": items.size,
                "payload": replay.signature.nbytes,
                "resident": grown,
                "told": told.store.bytes + items.bytes,
            }
        )
    )


def _replay(what: str, steps: int) -> hr.Replay:
    sampler = hr.selectors.Prioritized(0.6) if what == "prioritized" else None
    signature = frame_signature() if what == "frames" else small_signature()
    return hr.Replay(signature, [table(steps, sampler)], seed=0)


def _fill(replay: hr.Replay, what: str, steps: int) -> hr.Replay:
    if what == "frames":
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            fill_frames(writer, steps)
    else:
        with replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)]) as writer:
            fill(writer, steps)
    if what == "prioritized":
        info = replay.sample("t", 256).info
        replay.update_priorities("t", info.keys, info.priorities * 2)  # From here on each item has its own.
    return replay


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
