"""Keys that rise with the clock, for a replay that cannot know which keys were used before it."""

from __future__ import annotations

import time

# For each microsecond since 1970. A replay must make fewer items than this, on average over its life. The keys of a
# replay of 300 shards, `k * 300 + shard`, still fit into signed 64 bits.
_KEYS_A_MICROSECOND = 16
# The same in earlier versions, whose keys were too large for many shards.
_EARLIER_KEYS_A_MICROSECOND = 1024


def key_of_now() -> int:
    """Returns a key above all that were used in earlier lives of a replay, as long as the clock is not set back."""
    return time.time_ns() // 1000 * _KEYS_A_MICROSECOND


def key_after_load(saved: int) -> int:
    """Returns the key of the next item of a loaded replay: above all that the saved one may have used since.

    Args:
        saved: key of the next item when the replay was saved. Keys of a replay that an earlier version has loaded are
            ahead of `key_of_now`, and rise as they did there.
    """
    now = key_of_now()
    if saved > now:
        now = now // _KEYS_A_MICROSECOND * _EARLIER_KEYS_A_MICROSECOND
    return max(saved, now)
