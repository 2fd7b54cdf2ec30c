"""Commands ``privacy``: noise and ε of a schedule."""

import json
import math
from typing import Any

import click
from offbeat_core.number_checks import LARGEST_COUNT
from offbeat_private.limits import LARGEST_BANDS, check_schedule, most_at_work


class _Finite(click.FloatRange):
    """A range of numbers without NaN, which no comparison refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not a number.", param, ctx)
        return number


_COUNT = click.IntRange(1, LARGEST_COUNT)
_NUMBER = _Finite(1e-6, 1e6)

_PARTICIPATIONS = click.option(
    "--participations", metavar="k", type=_COUNT, required=True, help="The most versions that may take the same client."
)
_DELTA = click.option(
    "--delta", metavar="δ", type=_Finite(0, 1, min_open=True, max_open=True), required=True,
    help="δ; less than 1/clients.",
)  # fmt: skip


@click.group()
def privacy() -> None:
    """Plan differential privacy: the noise of a schedule, and its ε."""


@privacy.command(
    epilog="\b\nExample:\n  offbeat privacy plan --clients 1000 --participations 10 --separation 50 --buffer 10 "
    "--versions 1000 --delta 1e-6 --target-epsilon 4"
)
@click.option("--clients", metavar="N", type=_COUNT, required=True, help="All clients.")
@_PARTICIPATIONS
@click.option(
    "--separation", metavar="b", type=click.IntRange(1, LARGEST_BANDS), required=True,
    help="Least difference between the numbers of two versions that take the same client.",
)  # fmt: skip
@click.option("--buffer", metavar="K", type=_COUNT, required=True, help="Clients that a version takes.")
@click.option("--versions", metavar="n", type=_COUNT, required=True, help="Versions of the run.")
@_DELTA
@click.option("--target-epsilon", metavar="ε", type=_NUMBER, required=True, help="ε of a client after k versions.")
def plan(
    clients: int,
    participations: int,
    separation: int,
    buffer: int,
    versions: int,
    delta: float,
    target_epsilon: float,
) -> None:
    """Print the noise multiplier for a target ε.

    Prints either mechanism's error, too. A schedule that cannot be is refused; the error names the number to change.
    """
    from offbeat_private.accounting import epsilon as epsilon_of
    from offbeat_private.accounting import noise_multiplier as noise_multiplier_for
    from offbeat_private.noise.correlated_noise import prefix_sum_error
    from rich import box
    from rich.table import Table

    from offbeat.cli.terminal import console

    check_schedule(
        clients=clients, participations=participations, separation=separation, buffer=buffer, versions=versions
    )
    sigma = _rounded_up(noise_multiplier_for(target_epsilon, participations, delta))
    replace = epsilon_of(sigma, participations, delta, replace_one=True)
    mechanisms = {"independent": 1} if separation == 1 else {"independent": 1, "banded": separation}
    which = "independent noise" if separation == 1 else "either mechanism"
    console().print(f"noise_multiplier = {sigma:.12g} for {which}", highlight=False)
    console().print(
        f"ε = {epsilon_of(sigma, participations, delta):.4g} without a client's updates, {replace:.4g} with others in "
        f"their place, at δ = {delta:g}",
        highlight=False,
    )
    at_work = most_at_work(clients=clients, separation=separation, buffer=buffer)
    console().print(f"clients at work at the same time: at most {at_work:,}", highlight=False)
    table = Table("mechanism", "bands", "noise in a model", "gain", box=box.SIMPLE)
    independent = prefix_sum_error(participations, separation, 1, versions)
    for name, bands in mechanisms.items():
        error = prefix_sum_error(participations, separation, bands, versions)
        table.add_row(name, f"{bands:,}", f"{sigma * error:.3g}", f"{independent / error:.2f} ×")
    console().print(table)
    if separation == 1:
        console().print("banded noise is less from a separation of 2 on", highlight=False)
    console().print(
        "noise in a model: all sums so far, each coordinate, root mean square over the versions, in clip norms",
        highlight=False,
    )


@privacy.command(
    epilog="\b\nExample:\n  offbeat privacy epsilon --noise-multiplier 5 --participations 10 --delta 1e-5 "
    "--mechanism independent --json"
)
@click.option("--noise-multiplier", metavar="σ", type=_NUMBER, required=True, help="σ, in clip norms.")
@_PARTICIPATIONS
@_DELTA
@click.option(
    "--mechanism", type=click.Choice(["independent", "banded"]), default="independent",
    help="ε is the same for either.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def epsilon(noise_multiplier: float, participations: int, delta: float, mechanism: str, as_json: bool) -> None:
    """Print ε of a client that takes part in k versions.

    For zero-out and for replace-one adjacency.
    """
    from offbeat_private.accounting import epsilon as epsilon_of

    zero_out = epsilon_of(noise_multiplier, participations, delta)
    replace_one = epsilon_of(noise_multiplier, participations, delta, replace_one=True)
    if as_json:
        values = {
            "epsilon": _rounded(zero_out),
            "epsilon_replace_one": _rounded(replace_one),
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "participations": participations,
            "mechanism": mechanism,
        }
        click.echo(json.dumps(values))
        return
    click.echo(f"ε = {zero_out:.4g} without a client's updates (zero-out)")
    click.echo(f"ε = {replace_one:.4g} with others in their place (replace-one)")


def _rounded(value: float) -> float:
    """Return a number to four digits."""
    return float(f"{value:.4g}")


def _rounded_up(value: float) -> float:
    """Return the next number of four digits, so that its ε is not above the target."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return math.ceil(value / unit) * unit
