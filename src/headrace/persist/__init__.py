"""Every file of a replay: the store on disk, checkpoints, and the recovery of what they hold."""
