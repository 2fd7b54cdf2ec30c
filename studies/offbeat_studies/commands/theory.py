"""Commands ``offbeat theory …``: the papers' bounds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from offbeat.cli.experiments import select_labels
from offbeat.cli.options import ALGORITHM, FILE, SET

if TYPE_CHECKING:
    from offbeat.theory import Assumption
    from offbeat_studies.theory_bound.theory_report import TheoryReport


@click.group()
def theory() -> None:
    """Print the papers' convergence bounds, or measure them."""


@theory.command(
    epilog="\b\nExample:\n  offbeat theory bound experiments/quickstart.toml --algorithm fedbuff --smoothness 1 "
    "--initial-error 2 --variance 1 --diversity 0.5 --max-staleness 20 --rounds 2000"
)
@FILE
@SET
@ALGORITHM
@click.option("--smoothness", metavar="L", type=float, help="L of every client's loss.")
@click.option(
    "--initial-error", metavar="VALUE", type=float, help="f(w_0) - f*: the first model's loss above the best."
)
@click.option("--variance", metavar="VALUE", type=float, help="σ² of a single example's gradient.")
@click.option(
    "--diversity", metavar="VALUE", type=float, help="γ², ζ²: mean square of a client's gradient minus the mean one."
)
@click.option("--gradient-bound", metavar="G", type=float, help="G: G² is at least a minibatch gradient's mean square.")
@click.option(
    "--max-staleness",
    metavar="VERSIONS",
    type=click.IntRange(min=0),
    help="Staleness of the stalest update that is used; by default server.max_staleness, for fedlaavg Lemma 2's bound.",
)
@click.option("--rounds", metavar="T", type=click.IntRange(min=1), help="Server steps, where [stop] does not say it.")
def bound(
    file: Path,
    changes: Sequence[str],
    labels: Sequence[str],
    smoothness: float | None,
    initial_error: float | None,
    variance: float | None,
    diversity: float | None,
    gradient_bound: float | None,
    max_staleness: int | None,
    rounds: int | None,
) -> None:
    """Print the bounds for the algorithms of the experiment FILE.

    Also prints which assumptions the experiment breaks. Options give the constants that are not in the file; an error
    lists those that are missing.
    """
    from offbeat.config import experiment_file
    from offbeat_studies.theory_bound.constants import Known
    from offbeat_studies.theory_bound.theory_report import theory_reports

    experiment = experiment_file.load(file, changes)
    known = Known(
        smoothness=smoothness,
        initial_error=initial_error,
        variance=variance,
        diversity=diversity,
        gradient_bound=gradient_bound,
        max_staleness=max_staleness,
        rounds=rounds,
    )
    for label, report in theory_reports(experiment, select_labels(experiment, labels), known).items():
        _show(label, report)


@theory.command(epilog="\b\nExample:\n  offbeat theory measure --seeds 20")
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Independent runs of each setting.",
)
@click.pass_context
def measure(context: click.Context, seeds: int) -> None:
    """Measure every bound on small problems.

    The exit code is 1 if a bound is not as expected.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.cli.terminal import console
    from offbeat_studies.papers import theory as measured
    from offbeat_studies.papers.theory.measured_bound import COLUMNS, cells

    rows = measured.check(seeds)
    table = Table(box=box.SIMPLE)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("Measured", "Bound", "Ratio") else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in cells(row)))
    console().print(table)
    context.exit(0 if all(row.as_expected for row in rows) else 1)


def _show(label: str, report: "TheoryReport | str") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from offbeat.cli.terminal import console

    if isinstance(report, str):
        console().print(Text(f"\n{label}: {report}"))
        return
    broken = len(report.bound.broken)
    verdict = f"not proven, assumptions broken: {broken}" if broken else "proven if the given assumptions hold"
    value = f"{report.left_side} ≤ {report.bound.value:.6g}" if math.isfinite(report.bound.value) else "no bound"
    console().print(Text(f"\n{label}: {report.theorem}: {verdict}", style="bold"))
    console().print(Text(value))
    constants = [f"{constant.symbol} = {constant.value:.6g} ({constant.source})" for constant in report.constants]
    console().print(Text(f"with {', '.join(constants)}"))
    if report.recommended_lr is not None:
        console().print(Text(f"Recommended: local.lr = {report.recommended_lr:.6g}"))
    table = Table("", "Assumption", box=box.SIMPLE)
    for assumption in report.bound.assumptions:
        table.add_row(_status(assumption), Text(assumption.text))
    console().print(table)


def _status(assumption: "Assumption") -> str:
    if not assumption.holds:
        return "broken"
    return "given" if assumption.given else "holds"
