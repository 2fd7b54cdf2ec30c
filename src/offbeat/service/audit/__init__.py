"""The audit log: a hash chain of what changed who may do what."""
