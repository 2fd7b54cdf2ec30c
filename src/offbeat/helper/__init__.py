"""The helper: opens sums of masked updates, once, for a server that learns only the sums."""
