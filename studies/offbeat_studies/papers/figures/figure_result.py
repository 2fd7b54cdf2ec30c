"""Results of a figure: findings on its claims, and the record that is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from offbeat_studies.papers import DEFAULT_SEEDS
from offbeat_studies.papers.figures.finding import Evidence, Finding
from offbeat_studies.papers.figures.paper_figure import PaperFigure

DOTS_PER_INCH = 100  # of the figures: readable, and small enough for a repository
Key = tuple[str, str]
"""A figure's name and its scale."""


def seeds_option(seeds: int) -> str:
    """Return the command line option for so many seeds; none for the default."""
    return f" --seeds {seeds}" if seeds > DEFAULT_SEEDS else ""


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
    minutes: float  # of one core: processor time, or the duration of runs without it
    findings: tuple[Finding, ...]  # one for each claim
    figures: tuple[str, ...]  # the file names of ours
    table: str | None  # a Markdown table of all algorithms
    tuned: tuple[str, ...]  # the tried and the best hyper-parameters, in lines
    differs: tuple[str, ...]  # the differences from the paper's experiment, in lines
    file_figure: str = ""  # the figure or table that the whole file is about
    file_question: str = ""  # of the whole file; the beginning of ``question``
    seeds: tuple[int, ...] = ()  # none for theorems
    evidence: Evidence = "proxy"  # of the claims that are the paper's
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    # the paper's own numbers: by quantity and algorithm

    @property
    def key(self) -> Key:
        """The figure's name and its scale."""
        return self.name, self.scale

    @property
    def page(self) -> str:
        """The name of the page that it is on."""
        return self.name.partition("/")[0]

    @property
    def command(self) -> str:
        """The command that measures it."""
        return f"offbeat papers {self.name} --scale {self.scale}{seeds_option(len(self.seeds))}"

    def with_words_of(self, figure: PaperFigure) -> "FigureRecord":
        """Return the record with the texts of the file, which has its settings and claims."""
        scale = figure.scales[self.scale]
        changes = ", ".join(f"`{change}`" for change in scale.set)
        differs = (*figure.section.differs, *scale.notes, *([f"At this scale: {changes}."] if changes else []))
        findings = [
            replace(
                finding,
                claim=claim.name,
                paper=claim.paper,
                statement=claim.statement or claim.name,
                headline=claim.headline,
                has_own_limit=claim.has_chosen_limit and claim.limit_from == "ours",
                evidence="ours" if claim.ours else scale.evidence,
            )
            for finding, claim in zip(self.findings, figure.claims, strict=True)
        ]
        return replace(
            self.in_file_of(figure),
            figure=figure.section.figure,
            question=figure.section.question,
            findings=tuple(findings),
            differs=differs,
            evidence=scale.evidence,
            published=figure.section.published,
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
    seeds: Sequence[int] = ()

    @property
    def key(self) -> Key:
        """The figure's name and its scale."""
        return self.source.name, self.scale

    def record(self, folder: Path, name: str) -> FigureRecord:
        """Draw figures whose names begin with ``name`` into a folder; return the record."""
        drawn = tuple(path.name for path in self.draw(folder, name))
        return replace(self.bare_record(), figures=drawn, table=self.table() if self.table else None)

    def bare_record(self) -> FigureRecord:
        """Return the record without figures and table."""
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
            figures=(),
            table=None,
            tuned=tuple(self.tuned),
            differs=(),
            seeds=tuple(self.seeds),
        )
        return record.with_words_of(self.source)
