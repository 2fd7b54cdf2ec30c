"""Figures of the papers: their files, claims, runs and verdicts."""
