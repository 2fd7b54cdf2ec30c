"""Statistics over seeds: estimates with intervals, and hypothesis tests."""
