"""What came of a figure, in words and pictures, whatever it was made from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offbeat.reproduction.sections import ReproductionSection, Scale

Word = Literal["holds", "does not hold", "differs"]


@dataclass(frozen=True)
class Finding:
    """What came of a claim.

    Attributes:
        claim: What is claimed.
        paper: The paper's number or words.
        ours: Our number with its name.
        other: What it is compared with, and how.
        word: ``holds`` in all seeds, ``does not hold`` in none, or ``differs`` between them.
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
class Outcome:
    """A figure that was run.

    Attributes:
        name: Such as ``fedlaavg/fig4e``.
        path: Its file.
        section: Which figure it is.
        scale: The name of the scale.
        settings: The scale.
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
    world: str
    minutes: float
    findings: Sequence[Finding]
    draw: Callable[[Path, str], list[Path]]
    table: Callable[[], str] | None = None
    tuned: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The command that makes it."""
        return f"offbeat reproduce {self.name} --scale {self.scale}"
