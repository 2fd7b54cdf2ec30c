"""The coordinator: clients' assignments, leases and updates, around one algorithm."""

from offbeat.coordinator.coordinator import Coordinator, RecordedCall
from offbeat.coordinator.visits import Assignment, Receipt, Unknown

__all__ = ["Assignment", "Coordinator", "Receipt", "RecordedCall", "Unknown"]
