"""Uploaded updates: received in pieces, parsed and checked."""
