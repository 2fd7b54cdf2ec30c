"""The clients: their examples, their devices' speeds, and when they are available."""
