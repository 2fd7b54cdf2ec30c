"""Tokens and the clients they belong to."""
