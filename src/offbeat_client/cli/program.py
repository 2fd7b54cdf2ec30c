"""A program's run of its command line: errors are one line."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from offbeat_client.errors import OffbeatError


def run_program(command: click.Command, name: str) -> NoReturn:
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
        stop(name, *error.lines, code=2)
    except click.exceptions.NoArgsIsHelpError as error:  # whose message is the whole help
        stop(name, f"Missing command. See {_path(error, name)} --help.", code=error.exit_code)
    except click.ClickException as error:
        message = error.format_message().removesuffix(".")
        end = "" if message.endswith("?") else "."
        stop(name, f"{message}{end} See {_path(error, name)} --help.", code=error.exit_code)
    except OSError as error:  # for instance a full disk behind standard output
        # What is left in its buffer would be written at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop(name, f"{error.strerror}{f': {error.filename}' if error.filename else ''}", code=2)
    except (KeyboardInterrupt, click.Abort):
        _interrupted(name)
    except Exception:
        if interrupts:  # an import that Ctrl-C has broken off fails with other errors
            _interrupted(name)
        raise


def stop(name: str, *messages: str, code: int) -> NoReturn:
    """End the program with a line on standard error for each message."""
    for message in messages:
        click.echo(f"{name}: {' '.join(message.split())}", err=True)
    sys.exit(code)


def _interrupted(name: str) -> NoReturn:
    stop(name, "interrupted: what was finished is kept", code=128 + signal.SIGINT)


def _path(error: click.ClickException, name: str) -> str:
    """Return the command with whose help the error can be mended."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    return context.command_path if context else name
