"""The audit log: a hash chain of changes of tokens, clients and the run."""
