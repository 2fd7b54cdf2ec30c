"""The report on a population: who holds what, how fast, and when available."""
