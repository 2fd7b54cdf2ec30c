"""Command line: ``offbeat …``."""

import sys

import click
from offbeat_core.command_line import run_program, stop
from offbeat_private.helper.commands import helper

from offbeat.cli import experiments, listings, run_control, service, tokens
from offbeat.cli.audit import audit
from offbeat.cli.benchmark import benchmark
from offbeat.cli.clients import clients
from offbeat.cli.devices import devices
from offbeat.cli.join import join
from offbeat.cli.new import new
from offbeat.cli.privacy import privacy
from offbeat.cli.sweep import sweep
from offbeat.cli.theory import theory
from offbeat.cli.tracking import track
from offbeat.out_of_memory import is_out_of_memory
from offbeat.runs.interruption import InterruptedRunError


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offbeat")
def app() -> None:
    """Federated learning for clients that come and go."""


app.add_command(theory)
app.add_command(privacy)
app.add_command(helper)
app.add_command(audit)
for _command in (
    new,
    experiments.compare,
    experiments.run,
    sweep,
    benchmark,
    experiments.report,
    experiments.population,
    track,
    listings.algorithms,
    listings.data,
    devices,
    service.serve,
    join,
    service.status,
    clients,
    run_control.pause,
    run_control.resume,
    run_control.extend,
    tokens.tokens,
    tokens.make_token,
    tokens.revoke,
    service.runs,
    service.export,
    service.backup,
    service.demo,
):
    app.add_command(_command)


@app.command("reproduce", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def moved_reproduce() -> None:
    """Name the command that replaces this one."""
    raise click.ClickException("this is now 'python -m papers', in a checkout of Offbeat.")


def main(command: click.Command = app, name: str = "offbeat") -> None:
    """Run a command line; an error of the user's is one line and exit code 2."""
    try:
        run_program(command, name)
    except InterruptedRunError as error:
        flag = next((flag for flag in ("--fresh", "--replace") if flag in sys.argv), None)
        how = f" without {flag}" if flag else ""
        stop(name, f"{error}: the same command{how} resumes", code=128 + error.signal)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        stop(name, "not enough memory: choose a smaller model, data set or batch, or fewer --jobs", code=2)
