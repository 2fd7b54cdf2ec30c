"""The HTTP routes and the limits on requests."""
