"""Offbeat: federated learning for clients that come and go."""
