"""Options for Flower's apps, and their errors; the apps themselves are in tests/flower."""

import importlib.util
from collections.abc import Callable

import pytest

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give --client or --flower, one of them"),
        (("--client", "mine.py:make", "--flower", "app:app"), "give --client or --flower, one of them"),
        (("--client", "mine.py:make", "--run-config", "a=1"), "--run-config, --node-config and --flower-model are for"),
    ],
)
def test_an_app_or_a_client_joins(offbeat: Command, options: tuple[str, ...], message: str) -> None:
    code, _, errors = offbeat("join", "https://host", *options)
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_without_flower_the_error_says_how_to_install_it(offbeat: Command) -> None:
    code, _, errors = offbeat("join", "https://host", "--flower", "app:app")
    assert (code, errors) == (2, "offbeat: --flower needs Flower: pip install 'offbeat[flower]'\n")
