"""Buffers: what they add as updates arrive, and what they release to a server step."""
