"""The rule by which a run admits sites of its server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """The rule of a run: sites with all these labels, and of these names.

    Without labels the labels do not count, without names the names do not.
    """

    labels: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def admits(self, name: str, labels: frozenset[str]) -> bool:
        """Return whether a site of this name and with these labels may take part."""
        return self.labels <= labels and (not self.names or name in self.names)
