"""Results of a figure: findings on its claims, and the record that is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from papers.figures.paper_figure import PaperFigure

DOTS_PER_INCH = 100  # of the figures: readable, and small enough for a repository
Word = Literal["holds", "does not hold", "differs", "undecided"]
Key = tuple[str, str]
"""A figure's name and its scale."""


@dataclass(frozen=True)
class Finding:
    """The measured numbers and the verdict on a claim."""

    claim: str
    paper: str  # the paper's number or words
    ours: str  # our number with its name
    other: str  # the relation and the number on its right side
    word: Word  # see Verdict
    held: int = 0  # in how many seeds
    seeds: int | None = None  # None where their mean was judged
    quantity: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])  # by compared algorithm; none for differences

    @property
    def verdict(self) -> str:
        """The verdict, with the number of seeds."""
        return self.word if self.seeds is None else f"{self.word} ({self.held} of {self.seeds} seeds)"


@dataclass(frozen=True)
class FigureRecord:
    """Everything that the pages need about a figure."""

    name: str  # such as fedlaavg/fig4e
    scale: str
    fingerprint: str  # a hash of the settings and claims at the time of the run
    file: str
    paper: str
    figure: str  # the figure or table
    question: str
    world: str  # the setting in a line
    minutes: float  # the duration on one core
    findings: tuple[Finding, ...]  # one for each claim
    figures: tuple[str, ...]  # the file names of ours
    table: str | None  # a Markdown table of all algorithms
    tuned: tuple[str, ...]  # the tried and the best hyper-parameters, in lines
    differs: tuple[str, ...]  # the differences from the paper's experiment, in lines
    file_figure: str = ""  # the figure or table that the whole file is about
    file_question: str = ""  # of the whole file; the beginning of ``question``

    @property
    def key(self) -> Key:
        """The figure's name and its scale."""
        return self.name, self.scale

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"python -m papers {self.name} --scale {self.scale}"

    def with_words_of(self, figure: PaperFigure) -> "FigureRecord":
        """Return the record with the texts of the file, which has its settings and claims."""
        changes = ", ".join(f"`{change}`" for change in figure.scales[self.scale].set)
        differs = (*figure.section.differs, *([f"At this scale: {changes}."] if changes else []))
        findings = [
            replace(finding, claim=claim.name, paper=claim.paper)
            for finding, claim in zip(self.findings, figure.claims, strict=True)
        ]
        return replace(
            self.in_file_of(figure),
            figure=figure.section.figure,
            question=figure.section.question,
            findings=tuple(findings),
            differs=differs,
        )

    def in_file_of(self, figure: PaperFigure) -> "FigureRecord":
        """Return the record with the name and the title of the figure's file."""
        return replace(
            self,
            file=figure.path.as_posix(),
            paper=figure.section.paper,
            file_figure=figure.file_section.figure,
            file_question=figure.file_section.question,
        )


@dataclass(frozen=True)
class FigureResult:
    """The result of a figure's runs; see ``FigureRecord``."""

    source: PaperFigure
    scale: str
    world: str
    minutes: float
    findings: Sequence[Finding]
    draw: Callable[[Path, str], list[Path]]  # our PNG files into a folder, their names beginning with the text
    table: Callable[[], str] | None = None
    tuned: Sequence[str] = ()

    def record(self, folder: Path, name: str) -> FigureRecord:
        """Draw figures whose names begin with ``name`` into a folder; return the record."""
        record = FigureRecord(
            name=self.source.name,
            scale=self.scale,
            fingerprint=self.source.fingerprint(self.scale),
            file="",
            paper="",
            figure="",
            question="",
            world=self.world,
            minutes=self.minutes,
            findings=tuple(self.findings),
            figures=tuple(path.name for path in self.draw(folder, name)),
            table=self.table() if self.table else None,
            tuned=tuple(self.tuned),
            differs=(),
        )
        return record.with_words_of(self.source)
