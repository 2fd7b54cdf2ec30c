"""Report on a population: examples, speeds, availability."""
