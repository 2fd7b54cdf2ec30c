"""Commands that list algorithms and data."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from offbeat.algorithms import ALGORITHMS
from offbeat.cli import terminal
from offbeat.config.algorithm_table import default_hyper_parameters
from offbeat.data.catalogue import DATASETS

Command = Callable[..., tuple[int, str, str]]


class TestData:
    def test_list(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=200))
        monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
        monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
        code, out, err = offbeat("data", "list")
        assert (code, err) == (0, "")
        for name in DATASETS:
            assert f" {name} " in out
        assert "60,000" in out
        assert "comes with scikit-learn" in out

    def test_get(self, offbeat: Command) -> None:
        assert offbeat("data", "get", "digits") == (0, "comes with scikit-learn\n", "")


class TestAlgorithms:
    def test_a_wide_terminal_has_a_line_for_each_hyper_parameter(
        self, offbeat: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=160))
        code, out, err = offbeat("algorithms")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert max(map(cell_len, lines)) <= 160
        last_column = [line[lines[1].index("Hyper-parameters") :].rstrip() for line in lines]
        for key in (
            'pattern = { name = "round_robin", k = 2, every = 1 }', "step_sizes: none", "steps = [1, 50]",
            "compression = [0.01, 1.0]", 'staleness = { name = "polynomial", a = 0.5 }',
        ):  # fmt: skip
            assert key in last_column

    def test_a_narrow_terminal_does_not_cut_words(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(terminal, "console", lambda: Console(width=80))
        out = offbeat("algorithms")[1]
        assert max(map(cell_len, out.splitlines())) <= 80
        words = out.split()
        for name, kind in ALGORITHMS.items():
            described = (kind.__doc__ or "").partition("\n")[0]
            keys = default_hyper_parameters(kind)
            assert {name, *described.split()} <= set(words)
            assert all(key in words or f"{key}:" in words for key in keys)
        assert "…" not in out
