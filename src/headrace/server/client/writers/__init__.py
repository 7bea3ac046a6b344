"""Writers of replays on a server."""
