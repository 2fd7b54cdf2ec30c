"""Buffers that take in updates and release an aggregate to each server step."""
