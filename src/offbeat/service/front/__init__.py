"""Fronts, which speak with clients, and receive and check what they send."""
