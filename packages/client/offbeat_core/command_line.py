"""A program's run of its command line: errors are one line."""

import codecs
import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from offbeat_core.errors import OffbeatError


class Utf8Path(click.Path):
    """A path as ``Path``, which a shell completes; one that is not UTF-8 is refused.

    Several libraries open no other.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        try:
            os.fspath(value).encode()
        except UnicodeEncodeError:
            self.fail(f"the name {value} is not UTF-8: rename it", param, ctx)
        return super().convert(value, param, ctx)


_LIKE_ASCII = "offbeat_ascii"
_SIMILAR = str.maketrans({"…": "...", "–": "-", "−": "-", "±": "+-", "×": "x", "≥": ">=", "≤": "<=", "∞": "inf"})


def accept_all_text(stream: object) -> None:
    """Let a stream take any text, whatever its encoding.

    Bytes of file names are written as they are, some characters as similar ones, all others as escapes.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return
    codecs.register_error("offbeat", _replacement)
    codecs.register(_like_ascii)
    # Click would write UTF-8 into a stream whose encoding is called ASCII.
    is_ascii = codecs.lookup(stream.encoding).name == "ascii"
    stream.reconfigure(encoding=_LIKE_ASCII if is_ascii else None, errors="offbeat")


def _like_ascii(name: str) -> codecs.CodecInfo | None:
    """Return ASCII under another name."""
    if name != _LIKE_ASCII:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        incrementalencoder=ascii_codec.incrementalencoder,
        incrementaldecoder=ascii_codec.incrementaldecoder,
        name=name,
    )


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what is written for characters that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    if all("\udc80" <= character <= "\udcff" for character in text):
        return text.encode("ascii", "surrogateescape"), error.end
    return text.translate(_SIMILAR).encode("ascii", "backslashreplace"), error.end


def run_program(command: click.Command, name: str) -> NoReturn:
    """Run a command line; an error of the user's is one line and exit code 2."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # the caller has closed it
            setattr(sys, stream, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        accept_all_text(getattr(sys, stream))
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
        stop(name, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", code=2)
    except (KeyboardInterrupt, click.Abort):
        _interrupted(name)
    except Exception:
        if interrupts:  # an import that Ctrl-C has broken off fails with other errors
            _interrupted(name)
        raise
    finally:
        if interrupts:  # the end of the interpreter would print where another one has come
            signal.signal(signal.SIGINT, signal.SIG_DFL)


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
