"""The live page's data: the run's history, and its current state."""
