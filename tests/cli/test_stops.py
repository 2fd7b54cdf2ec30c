"""Ends of the command line that no command foresees."""

import os
import signal
import sys
from collections.abc import Callable

import click
import pytest
import torch

RunMain = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _same_handler() -> object:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_error_after_ctrl_c_is_an_interruption(run_main: RunMain) -> None:
    @click.command()
    def imports() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError("of a module that is half imported") from None

    signal.signal(signal.SIGINT, signal.default_int_handler)
    code, _, err = run_main(imports, "offbeat")
    assert (code, err) == (130, "offbeat: interrupted: what was finished is kept\n")


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(2**50), lambda: torch.empty(2**40, 2**40), lambda: [0] * 2**58]
)
def test_an_allocation_that_fails_is_one_line(allocate: Callable[[], object], run_main: RunMain) -> None:
    code, _, err = run_main(click.command()(lambda: allocate() and None), "offbeat")
    assert code == 2
    assert err.startswith("offbeat: not enough memory")
    assert err.count("\n") == 1


def test_other_errors_are_not_hidden(run_main: RunMain) -> None:
    @click.command()
    def broken() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run_main(broken, "offbeat")


def test_a_closed_output_is_no_error(run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    code, _, err = run_main(click.command()(lambda: click.echo(str(sys.stdout.isatty()))), "offbeat")
    assert (code, err) == (0, "")


def test_ctrl_c_after_an_interruption_ends_the_program_without_a_word(run_main: RunMain) -> None:
    @click.command()
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert run_main(interrupted, "offbeat")[0] == 130
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # else the interpreter's end would print a traceback
