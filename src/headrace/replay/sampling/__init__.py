"""From drawn items to a batch: rows are found under the lock and copied outside it, through views."""
