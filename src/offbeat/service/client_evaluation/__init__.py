"""Evaluation of versions by some of a server's clients."""
