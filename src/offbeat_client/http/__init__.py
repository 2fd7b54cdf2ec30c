"""Requests to the server: one connection, retries, and the exchanges of ``docs/protocol.md``."""
