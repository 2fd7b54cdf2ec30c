"""Command line: ``offbeat …``."""

import sys

import click
from offbeat_core.command_line import run_program, stop
from offbeat_private.helper.commands import helper

from offbeat.cli.client import client, join
from offbeat.cli.command_groups import OpenGroup
from offbeat.cli.demo.command import demo
from offbeat.cli.experiment_parts import advise, algorithms, data, devices, population
from offbeat.cli.experiments import compare, report, run
from offbeat.cli.new import new
from offbeat.cli.privacy import privacy
from offbeat.cli.server.server import server
from offbeat.cli.sweep import sweep
from offbeat.cli.tracking import track
from offbeat.cli.ui import ui
from offbeat.process_memory import is_out_of_memory
from offbeat.runs.interruption import InterruptedRunError


@click.group(cls=OpenGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offbeat")
def app() -> None:
    """Federated learning for clients that come and go."""


assert isinstance(app, OpenGroup)
app.add_section("Experiments", [new, compare, run, sweep, report, track, ui])
app.add_section("An experiment's parts", [advise, algorithms, data, devices, population, privacy])
app.add_section("Federations", [demo, server, join, client, helper])


def main(command: click.Command = app, name: str = "offbeat") -> None:
    """Run a command line; an error of the user's is one line and exit code 2."""
    try:
        run_program(command, name)
    except InterruptedRunError as error:
        how = " without --fresh" if "--fresh" in sys.argv else ""
        stop(name, f"{error}: the same command{how} resumes", code=128 + error.signal)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        stop(name, "not enough memory: choose a smaller model, data set or batch, or fewer --jobs", code=2)
