"""Command line: ``offbeat …``."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from offbeat.cli import experiments, listings, run_control, service, tokens
from offbeat.cli.audit import audit
from offbeat.cli.benchmark import benchmark
from offbeat.cli.clients import clients
from offbeat.cli.devices import devices
from offbeat.cli.helper import helper
from offbeat.cli.join import join
from offbeat.cli.new import new
from offbeat.cli.privacy import privacy
from offbeat.cli.sweep import sweep
from offbeat.cli.theory import theory
from offbeat.cli.tracking import track
from offbeat.errors import OffbeatError, is_out_of_memory
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
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller has closed it
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        code = command(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except OffbeatError as error:
        _stop(name, *error.lines, code=2)
    except click.exceptions.NoArgsIsHelpError as error:  # whose message is the whole help
        _stop(name, f"Missing command. See {_path(error, name)} --help.", code=error.exit_code)
    except click.ClickException as error:
        _stop(
            name, f"{error.format_message().removesuffix('.')}. See {_path(error, name)} --help.", code=error.exit_code
        )
    except OSError as error:  # for instance a full disk behind standard output
        # What is left in its buffer would be written at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _stop(name, f"{error.strerror}{f': {error.filename}' if error.filename else ''}", code=2)
    except InterruptedRunError as error:
        flag = next((flag for flag in ("--fresh", "--replace") if flag in sys.argv), None)
        how = f" without {flag}" if flag else ""
        _stop(name, f"{error}: the same command{how} resumes", code=128 + error.signal)
    except (KeyboardInterrupt, click.Abort):
        _interrupted(name)
    except Exception as error:
        if interrupts:  # an import that Ctrl-C has broken off fails with other errors
            _interrupted(name)
        if not is_out_of_memory(error):
            raise
        _stop(name, "not enough memory: choose a smaller model, data set or batch, or fewer --jobs", code=2)


def _interrupted(name: str) -> NoReturn:
    _stop(name, "interrupted: what was finished is kept", code=128 + signal.SIGINT)


def _path(error: click.ClickException, name: str) -> str:
    """Return the command with whose help the error can be mended."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context.command_path if context else name


def _stop(name: str, *messages: str, code: int) -> NoReturn:
    for message in messages:
        click.echo(f"{name}: {' '.join(message.split())}", err=True)
    sys.exit(code)
