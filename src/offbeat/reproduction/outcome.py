"""What came of a figure, in words and pictures, whatever it was made from, and what is kept of it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offbeat.reproduction.sections import ReproductionSection, Scale

DOTS_PER_INCH = 100  # of the figures: readable, and small enough to be kept in a repository
Word = Literal["holds", "does not hold", "differs", "undecided"]
Key = tuple[str, str]
"""A figure's name and its scale's."""


@dataclass(frozen=True)
class Finding:
    """What came of a claim.

    Attributes:
        claim: What is claimed.
        paper: The paper's number or words.
        ours: Our number with its name.
        other: What it is compared with, and how.
        word: The verdict; see ``Verdict``.
        held: In how many of the seeds it holds.
        seeds: How many there are; None where their mean was judged.
    """

    claim: str
    paper: str
    ours: str
    other: str
    word: Word
    held: int = 0
    seeds: int | None = None

    @property
    def verdict(self) -> str:
        """The verdict, and of how many seeds."""
        return self.word if self.seeds is None else f"{self.word} ({self.held} of {self.seeds} seeds)"


@dataclass(frozen=True)
class Record:
    """All that the pages say of a figure that was run.

    Attributes:
        name: Such as ``fedlaavg/fig4e``.
        scale: The name of the scale.
        fingerprint: Of the settings and claims that the file had; see ``fingerprint_of``.
        file: The figure's file.
        paper: The paper.
        figure: The figure or table.
        question: What it is about.
        world: What was run, in a line.
        minutes: How long it took, on one core.
        findings: One a claim.
        figures: The names of the files with our version of the figure.
        table: A Markdown table of all algorithms; None for none.
        tuned: What was tried before, in lines.
        differs: In what it differs from the paper's experiment, in lines.
    """

    name: str
    scale: str
    fingerprint: str
    file: str
    paper: str
    figure: str
    question: str
    world: str
    minutes: float
    findings: tuple[Finding, ...]
    figures: tuple[str, ...]
    table: str | None
    tuned: tuple[str, ...]
    differs: tuple[str, ...]

    @property
    def key(self) -> Key:
        """The figure's name and the scale's."""
        return self.name, self.scale

    @property
    def command(self) -> str:
        """The command that makes it."""
        return f"offbeat reproduce {self.name} --scale {self.scale}"


@dataclass(frozen=True)
class Outcome:
    """A figure that was run, as its runs say.

    Attributes:
        name: Such as ``fedlaavg/fig4e``.
        path: Its file.
        section: Which figure it is.
        scale: The name of the scale.
        settings: The scale.
        fingerprint: Of its settings and claims.
        world: What was run, in a line.
        minutes: How long it took, on one core.
        findings: One a claim.
        draw: Writes our version of the figure as PNG files into a folder, their names beginning with what is given;
            returns their paths.
        table: Makes a Markdown table of all algorithms; None for none.
        tuned: What was tried before, in lines.
    """

    name: str
    path: Path
    section: ReproductionSection
    scale: str
    settings: Scale
    fingerprint: str
    world: str
    minutes: float
    findings: Sequence[Finding]
    draw: Callable[[Path, str], list[Path]]
    table: Callable[[], str] | None = None
    tuned: Sequence[str] = ()

    def record(self, folder: Path, name: str) -> Record:
        """Draw the figure into a folder, and return what is kept of it.

        Args:
            folder: Where the figures go.
            name: How their names begin.
        """
        figures = self.draw(folder, name)
        return Record(
            self.name,
            self.scale,
            self.fingerprint,
            self.path.as_posix(),
            self.section.paper,
            self.section.figure,
            self.section.question,
            self.world,
            self.minutes,
            tuple(self.findings),
            tuple(path.name for path in figures),
            self.table() if self.table else None,
            tuple(self.tuned),
            (*self.section.differs, *(f"at this scale `{change}`" for change in self.settings.set)),
        )


def fingerprint_of(settings: object) -> str:
    """Return a short text that is another one for other settings; they are anything that JSON can say."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
