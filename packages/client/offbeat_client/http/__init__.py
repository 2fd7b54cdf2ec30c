"""Requests to the server: connection, retries, exchanges of the protocol."""
