"""Command ``server privacy``: ε of each client over runs."""

import json
import math

import click

from offbeat.cli.server.server_place import SERVERS, ServerPlace
from offbeat.cli.terminal import visible


@click.command("privacy", epilog="\b\nExample:\n  offbeat server privacy runs/first runs/second")
@SERVERS
@click.option(
    "--delta", metavar="δ", type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="δ; by default the smallest privacy.delta of the runs.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON; null for no bound.")
def privacy(servers: tuple[ServerPlace, ...], delta: float | None, as_json: bool) -> None:
    """Show ε of each client over all runs of FOLDERs together.

    A client's name stands for it; on a server of several runs its site's number. Servers may be stopped, and FOLDERs
    may be backups.
    """
    from offbeat_core.errors import OffbeatError

    from offbeat.service.server.spent_privacy import composed, read_runs

    runs = [run for server in servers for run in read_runs(*server)]
    delta = delta or min((run.delta for run in runs if run.delta is not None), default=None)
    if delta is None:
        raise OffbeatError("none of these runs has [privacy], so ε has no bound")
    spent = sorted(composed(runs).items(), key=lambda pair: (-pair[1].spending, pair[0]))
    rows = [
        (name, one.runs, one.participations, one.epsilon(delta), one.epsilon(delta, replace_one=True))
        for name, one in spent
    ]
    if as_json:
        keys = ("name", "runs", "participations", "epsilon", "epsilon_replace_one")
        finite = [[None if value == math.inf else value for value in row] for row in rows]
        click.echo(json.dumps({"delta": delta, "clients": [dict(zip(keys, row, strict=True)) for row in finite]}))
        return
    click.echo(f"{'epsilon':>8}  {'replace-one':>11}  {'participations':>14}  {'runs':>4}  name (delta {delta:g})")
    for name, number, participations, epsilon, replace_one in rows:
        click.echo(f"{epsilon:8.4g}  {replace_one:11.4g}  {participations:14,}  {number:4}  {visible(name)}")
