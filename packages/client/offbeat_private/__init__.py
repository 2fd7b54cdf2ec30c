"""Private sums: masks, the helper that opens them, noise and its accounting."""
