"""The clients: who holds which examples, how fast each device is, and when it is available."""
