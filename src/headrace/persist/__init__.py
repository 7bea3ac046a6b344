"""Every file of a replay: the store on disk, checkpoints, and recovery."""
