"""The coordinator: clients' assignments, leases and updates, around one algorithm."""

from offbeat.coordinator.coordinator import Coordinator

__all__ = ["Coordinator"]
