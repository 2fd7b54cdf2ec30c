"""The coordinator behind requests: assignments, leases, checkpoints, evaluation."""
