"""The service: the coordinator over HTTP, with a crash-safe store."""
