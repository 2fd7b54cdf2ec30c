"""The live page's data: the run's history, its current state, and the viewers."""
