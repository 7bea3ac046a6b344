"""The store on disk: the files of a replay that survive its process."""
