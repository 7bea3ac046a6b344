"""Pages that writers leave before they are full (replay C4, server LP3)."""

from types import SimpleNamespace

import numpy as np

from headrace.store.layout import LANES
from headrace.store.pages.unfinished import UnfinishedPages


def test_a_page_that_is_left_again_and_again_takes_no_more_memory():
    """A client whose connection is lost each minute leaves its page and takes it back as often."""
    words = np.ones((4, LANES + 20), np.int64)
    pages = UnfinishedPages(SimpleNamespace(pages=words))
    for _ in range(40):
        for page in (1, 2):
            pages.leave(page, None)
            pages.forget(page)
    pages.leave(2, None)
    pages.leave(1, None)
    assert len(pages._left[1]) == 2
    assert [pages.newest(1) for _ in range(3)] == [1, 2, -1]
