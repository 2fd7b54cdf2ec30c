"""Command ``track``, and the option ``--track`` of runs."""

import shlex
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from offbeat_core.errors import OffbeatError

from offbeat.cli.options import PATH
from offbeat.trackers.tracker import TRACKERS, TrackerName

TRACK = click.option(
    "--track",
    "trackers",
    type=click.Choice(TRACKERS),
    multiple=True,
    help="Also send the runs to this tracker; may be given several times.",
)


@click.command(epilog="\b\nExample:\n  offbeat track runs/quickstart --to wandb")
@click.argument("folder", metavar="FOLDER", type=PATH)
@click.option("--to", "name", type=click.Choice(TRACKERS), required=True, help="The tracker.")
@click.option("--follow", is_flag=True, hidden=True, help="Go on until standard input is closed.")
def track(folder: Path, name: TrackerName, follow: bool) -> None:
    """Send the runs in FOLDER to a tracker.

    Only what the tracker does not have yet.
    """
    if follow:
        from offbeat.trackers.catch_up import follow as follow_runs

        follow_runs(folder, name)
        return
    from offbeat.trackers.catch_up import CatchUp, run_paths

    if not folder.is_dir():
        raise OffbeatError(f"{folder} is not a folder: name the folder of runs that `offbeat compare` wrote")
    if not any(run_paths(folder)):
        raise OffbeatError(f"{folder} holds no runs: name the folder of runs that `offbeat compare` wrote")
    click.echo(f"{name}: {CatchUp(folder, name).send():,} evaluations sent")


@contextmanager
def tracked(folder: Path, names: Sequence[TrackerName]) -> Generator[None]:
    """Send the runs that are carried out inside, and report what was not sent."""
    if not names:
        yield
        return
    from offbeat.trackers.catch_up import Follower
    from offbeat.trackers.tracker import check_installed

    for name in names:
        check_installed(name)
    followers = [Follower(folder, name) for name in dict.fromkeys(names)]
    try:
        with ExitStack() as stack:
            for follower in followers:
                stack.enter_context(follower)
            yield
    finally:
        for follower in followers:
            if follower.problem:
                again = shlex.join(["offbeat", "track", str(folder), "--to", follower.name])
                click.echo(f"{follower.problem}; send the rest with `{again}`", err=True)
