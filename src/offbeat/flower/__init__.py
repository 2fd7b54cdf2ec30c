"""Flower's apps: a ClientApp as a client, and algorithms as a ServerApp."""
