"""Workers that wait for a page of a full store."""

import time


def wait_until_a_page_is_owed(collector):
    """Waits until the first worker waits for a page that is not free."""
    changed, end = collector._group.status.changed, time.monotonic() + 40
    while not collector._group.handles[0].peer.rows.owes_pages:
        assert time.monotonic() < end
        with changed:
            changed.wait(0.05)
