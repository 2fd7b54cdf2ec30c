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
    """The measured numbers and the verdict on a claim.

    Attributes:
        claim: The claim's text.
        paper: The paper's number or words.
        ours: Our number with its name.
        other: The relation and the number on its right side.
        word: The verdict; see ``Verdict``.
        held: In how many seeds it holds.
        seeds: The number of seeds; None where their mean was judged.
        quantity: The name of the quantity.
        values: The quantity of each algorithm that the claim compares; none for differences.
    """

    claim: str
    paper: str
    ours: str
    other: str
    word: Word
    held: int = 0
    seeds: int | None = None
    quantity: str = ""
    values: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def verdict(self) -> str:
        """The verdict, with the number of seeds."""
        return self.word if self.seeds is None else f"{self.word} ({self.held} of {self.seeds} seeds)"


@dataclass(frozen=True)
class FigureRecord:
    """Everything that the pages need about a figure.

    Attributes:
        name: Such as ``fedlaavg/fig4e``.
        scale: The name of the scale.
        fingerprint: A hash of the settings and claims at the time of the run.
        file: The figure's file.
        paper: The paper.
        figure: The figure or table.
        question: Its question.
        world: The setting in a line.
        minutes: The duration on one core.
        findings: One for each claim.
        figures: The file names of our figures.
        table: A Markdown table of all algorithms; None for none.
        tuned: The tried and the best hyper-parameters, in lines.
        differs: The differences from the paper's experiment, in lines.
        file_figure: The figure or table that the whole file is about.
        file_question: The question of the whole file; the beginning of ``question``.
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
    file_figure: str = ""
    file_question: str = ""

    @property
    def key(self) -> Key:
        """The figure's name and its scale."""
        return self.name, self.scale

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"python -m papers {self.name} --scale {self.scale}"

    def with_words_of(self, figure: PaperFigure) -> "FigureRecord":
        """Return the record with the texts of the figure's file.

        The record must have the settings and claims of that file.
        """
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
    """The result of a figure's runs.

    Attributes:
        source: The figure.
        scale: The name of the scale.
        world: The setting in a line.
        minutes: The duration on one core.
        findings: One for each claim.
        draw: Writes our figures as PNG files into a folder, their names beginning with the given text; returns their
            paths.
        table: Makes a Markdown table of all algorithms; None for none.
        tuned: The tried and the best hyper-parameters, in lines.
    """

    source: PaperFigure
    scale: str
    world: str
    minutes: float
    findings: Sequence[Finding]
    draw: Callable[[Path, str], list[Path]]
    table: Callable[[], str] | None = None
    tuned: Sequence[str] = ()

    def record(self, folder: Path, name: str) -> FigureRecord:
        """Draw the figures into a folder and return the record.

        The figures' names begin with ``name``.
        """
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
