"""Writers whose steps come from clients."""
