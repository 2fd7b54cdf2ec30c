"""Runs: carried out, written, resumed and shown while they last."""
