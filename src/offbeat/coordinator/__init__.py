"""The coordinator: which client holds which version, what is due, what is late."""

from offbeat.coordinator.coordinator import Coordinator

__all__ = ["Coordinator"]
