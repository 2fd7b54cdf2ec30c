"""Requests to the server.

The modules hold the connection, retries, and the exchanges of ``docs/protocol.md``.
"""
