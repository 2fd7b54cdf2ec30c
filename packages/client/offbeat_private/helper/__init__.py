"""The helper: opens sums of masked updates for a server, each once."""
