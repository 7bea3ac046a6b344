"""Several replays behind the interface of one."""
