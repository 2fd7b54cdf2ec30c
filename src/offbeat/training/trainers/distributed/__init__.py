"""Clients in several processes or on several machines."""
