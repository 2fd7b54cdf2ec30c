"""The live page's data: the run's history, its state now, and the viewers."""
