"""The service: the coordinator over HTTP, with a crash-safe store.

The subpackages also hold the part that clients need.
"""
