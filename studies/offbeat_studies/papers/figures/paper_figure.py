"""Attributes that all kinds of figures share, and fingerprints of their settings."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offbeat_studies.papers.figures.sections import ReproductionSection, Scale, Statement


@dataclass(frozen=True)
class PaperFigure(ABC):
    """A figure or theorem of a paper, read from its file and checked."""

    name: str  # the file's folder and name, and the panel's, such as fedlaavg/fig4e
    path: Path
    section: ReproductionSection
    file_section: ReproductionSection  # of the whole file, without the panel
    scales: dict[str, Scale]
    claims: Sequence[Statement]

    @abstractmethod
    def fingerprint(self, scale: str) -> str:
        """Return a hash of the settings and claims at a scale; texts do not count."""


def fingerprint_of(settings: object) -> str:
    """Return a short hash of settings, which are anything that JSON can hold."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
