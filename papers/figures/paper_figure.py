"""The attributes that all kinds of figures share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.figures.sections import ReproductionSection, Scale, Statement


@dataclass(frozen=True)
class PaperFigure(ABC):
    """A figure or theorem of a paper, read from its file and checked.

    Attributes:
        name: The file's folder and name, and the panel's, such as ``fedlaavg/fig4e``.
        path: The file.
        section: The paper, the figure and its question.
        file_section: The same of the whole file, without the panel.
        scales: The sizes at which it can be run, by name.
        claims: What the paper claims.
    """

    name: str
    path: Path
    section: ReproductionSection
    file_section: ReproductionSection
    scales: dict[str, Scale]
    claims: Sequence[Statement]

    @abstractmethod
    def fingerprint(self, scale: str) -> str:
        """Return a hash of the settings and claims at a scale; texts do not count."""
