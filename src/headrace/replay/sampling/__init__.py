"""From drawn items to a batch: what views show of them, found under the lock and copied outside it."""
