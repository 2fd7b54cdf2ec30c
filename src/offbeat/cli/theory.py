"""``offbeat theory …``: the papers' bounds."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from offbeat.config import experiment_file
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.report.theory_bound.constants import Known
from offbeat.report.theory_bound.table import TheoryReport, theory_reports
from offbeat.theory import Assumption

# What is piped into a file is not folded to 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=160)


@click.group()
def theory() -> None:
    """Print the papers' convergence bounds."""


@theory.command(
    epilog="\b\nExample:\n  offbeat theory bound experiments/quickstart.toml --algorithm fedbuff --smoothness 1 "
    "--initial-error 2 --variance 1 --diversity 0.5 --max-staleness 20 --rounds 2000"
)
@click.argument("file", metavar="FILE", type=Path)
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a key of the file. Repeatable.")
@click.option("--algorithm", "only", metavar="LABEL", multiple=True, help="Only this algorithm. Repeatable.")
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
    help="Staleness of the stalest update that is used; server.max_staleness if it is left out.",
)
@click.option("--rounds", metavar="T", type=click.IntRange(min=1), help="Server steps, where [stop] does not say it.")
def bound(
    file: Path,
    changes: Sequence[str],
    only: Sequence[str],
    smoothness: float | None,
    initial_error: float | None,
    variance: float | None,
    diversity: float | None,
    gradient_bound: float | None,
    max_staleness: int | None,
    rounds: int | None,
) -> None:
    """Print what is proven of the algorithms of the experiment FILE, and which assumptions it breaks.

    What the file cannot know is given by options; which of them a theorem needs is said if one is missing.
    """
    experiment = experiment_file.load(file, changes)
    for label in only:
        if label not in experiment.algorithms:
            raise OffbeatError(f"--algorithm {label}: {did_you_mean(label, experiment.algorithms)}")
    known = Known(
        smoothness=smoothness,
        initial_error=initial_error,
        variance=variance,
        diversity=diversity,
        gradient_bound=gradient_bound,
        max_staleness=max_staleness,
        rounds=rounds,
    )
    for label, report in theory_reports(experiment, only or experiment.algorithms, known).items():
        _show(label, report)


@theory.command("check", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def moved_check() -> None:
    """Say where the command is now."""
    raise click.ClickException("this is now 'python -m papers theory', in a checkout of Offbeat.")


def _show(label: str, report: TheoryReport | str) -> None:
    if isinstance(report, str):
        console.print(Text(f"\n{label}: {report}"))
        return
    broken = len(report.bound.broken)
    told = f"not proven, assumptions broken: {broken}" if broken else "proven, if what is given is true"
    value = f"{report.left_side} ≤ {report.bound.value:.6g}" if math.isfinite(report.bound.value) else "no bound"
    console.print(Text(f"\n{label}: {report.theorem}: {told}", style="bold"))
    console.print(Text(value))
    constants = [f"{constant.symbol} = {constant.value:.6g} ({constant.source})" for constant in report.constants]
    console.print(Text(f"with {', '.join(constants)}"))
    if report.recommended_lr is not None:
        console.print(Text(f"Recommended: local.lr = {report.recommended_lr:.6g}"))
    table = Table("", "Assumption", box=box.SIMPLE)
    for assumption in report.bound.assumptions:
        table.add_row(_status(assumption), Text(assumption.text))
    console.print(table)


def _status(assumption: Assumption) -> str:
    if not assumption.holds:
        return "broken"
    return "given" if assumption.given else "holds"
