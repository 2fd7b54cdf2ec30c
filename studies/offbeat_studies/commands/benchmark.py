"""Command ``benchmark``."""

from collections.abc import Sequence
from pathlib import Path

import click

from offbeat.cli.options import FRESH, JOBS, PATH


@click.command(
    epilog="\b\nExample:\n  offbeat benchmark my.py:Mine --world longtail --jobs 2\n"
    "  offbeat benchmark fedavg fedbuff --world calm --seeds 5"
)
@click.argument("algorithms", metavar="[ALGORITHM|FILE:CLASS]...", nargs=-1)
@click.option("--world", "worlds", metavar="NAME", multiple=True, help="Only this world; or a TOML file. Repeatable.")
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=2),
    help="Seeds of the comparison: 1 to N; 10 if the world does not say otherwise. Tuning has seed 0.",
)
@click.option(
    "--over",
    "overs",
    metavar="KEY=VALUES",
    multiple=True,
    help="What tuning changes in FILE:CLASS, as in offbeat sweep: LOW:HIGH, LOW:HIGH:log or A,B,C. Repeatable.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    type=PATH,
    default=Path("runs/benchmark"),
    show_default=True,
    help="Folder of runs and data.",
)
@FRESH
@JOBS
def benchmark(
    algorithms: Sequence[str],
    worlds: Sequence[str],
    seeds: int | None,
    overs: Sequence[str],
    output: Path,
    fresh: bool,
    jobs: int,
) -> None:
    """Tune algorithms in worlds; compare with published results.

    ALGORITHM is a label of the benchmark, or FILE:CLASS for a class of your own; without any, all labels are run.
    Without --world, worlds whose data or packages are missing are left out.
    """
    from offbeat_core.errors import OffbeatError

    from offbeat.cli.terminal import console
    from offbeat.data.dataset import MissingDataError
    from offbeat.runs.progress import Progress
    from offbeat_studies.benchmark import raw_data
    from offbeat_studies.benchmark.catalogue import read_entries
    from offbeat_studies.benchmark.effects import compare
    from offbeat_studies.benchmark.protocol import Plan, carry_out
    from offbeat_studies.benchmark.table import budget_line, comparison_table
    from offbeat_studies.benchmark.world import read_world, world_names

    plans = [
        Plan(
            world,
            read_entries(world, algorithms, overs),
            range(1, (seeds or world.seeds) + 1),
            output / world.name,
        )
        for world in map(read_world, dict.fromkeys(worlds or world_names()))
    ]
    plans = [plan for plan in plans if plan.entries]
    if not plans:
        raise OffbeatError(f"{', '.join(algorithms)}: not in {', '.join(worlds)}: name another world")
    ready: list[Plan] = []
    for plan in plans:
        try:
            click.echo(budget_line(plan, plan.expected_seconds(click.echo), fresh=fresh))
        except MissingDataError as error:
            if worlds or (plan is plans[-1] and not ready):
                raise
            click.echo(f"{plan.world.name} is left out: {error}")
        else:
            ready.append(plan)
    for plan in ready:
        world = plan.world
        tuned = carry_out(
            plan, lambda experiment: Progress(console(), experiment.stop, "accuracy"), jobs=jobs, fresh=fresh
        )
        data = raw_data.data_of(world, tuned)
        path = raw_data.write(output, world.name, data)
        others = raw_data.published(world.name)
        both = data if others is None else data.with_others(others)
        console().print(comparison_table(world, compare(world, both.curves), own=list(data.facts)))
        click.echo(f"Data: {path}")
