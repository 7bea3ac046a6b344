"""The rows of windows, compared with the episodes that they were cut from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.memory.arena import Arena
from headrace.store.store import Store


@settings(max_examples=fewer(50))
@given(
    st.integers(1, 3),
    st.integers(3, 9),
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.booleans(),
    st.data(),
)
def test_window_rows_equal_the_episodes(
    lanes: int, page_rows: int, lengths: list[int], with_finals: bool, data: st.DataObject
):
    """Windows of one episode each, over pages, the final row beside the lanes or among them included; then -1."""
    signature = Signature({"number": ArraySpec((), np.int64)})
    store = Store(signature, 4096, make_arena=Arena.private, page_rows=page_rows)
    block = LaneBlock(store, lanes, 1000)
    episodes: list[list[int]] = []
    for length in lengths:
        running: list[list[int]] = [[] for _ in range(lanes)]
        for _ in range(length):
            block.make_room()
            for lane in range(lanes):
                running[lane].append(block.row + lane)
            block.commit()
        if with_finals and lanes == 1:
            block.make_room()
            running[0].append(block.row)
            block.commit_final()
        else:
            for lane in range(lanes):
                if not with_finals:
                    block.end_without_final(lane)
                    continue
                first, _ = block.make_room_for_finals()
                block.commit_finals(np.array([lane]), first)
                running[lane].append(first)
        episodes += running
    picks = []
    for _ in range(data.draw(st.integers(1, 8))):
        episode = data.draw(st.sampled_from(episodes))
        start = data.draw(st.integers(0, len(episode) - 1))
        picks.append(episode[start : start + data.draw(st.integers(1, len(episode) - start))])
    longest = max(map(len, picks)) + data.draw(st.integers(0, 2))
    rows = np.empty((len(picks), longest), np.int64)
    store.window.rows_of_windows(
        np.array([pick[0] for pick in picks]),
        np.array([len(pick) for pick in picks], np.uint32),
        rows,
    )
    assert rows.tolist() == [pick + [-1] * (longest - len(pick)) for pick in picks]
