import re
from collections.abc import Callable
from pathlib import Path

import pytest

from offbeat.theory import fedbuff_bound
from offbeat_studies.papers import theory
from offbeat_studies.papers.theory import Row
from offbeat_studies.theory_bound import theory_report
from offbeat_studies.theory_bound.constants import Known

Command = Callable[..., tuple[int, str, str]]


OPTIONS = (
    "--smoothness", "0.5", "--initial-error", "2", "--variance", "4", "--diversity", "0.3", "--gradient-bound", "3",
    "--max-staleness", "1", "--rounds", "700",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_toml: str) -> None:
    """The working folder; it holds tiny.toml."""
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
class TestBound:
    def test_prints_the_bound_and_the_assumptions(self, offbeat: Command) -> None:
        code, out, err = offbeat("theory", "bound", "tiny.toml", *OPTIONS, "--set", "local.lr=0.5")
        assert (code, err) == (0, "")
        by_hand = fedbuff_bound(
            server_steps=700, steps=3, clients=20, max_staleness=1, smoothness=0.5, initial_error=2.0, variance=4.0,
            diversity=0.3, batch_size=8,
        )  # fmt: skip
        assert f"(1/T) Σ_{{t<T}} E‖∇f(w_t)‖² ≤ {by_hand.value:.6g}\n" in out
        assert "fedbuff: Theorem 1 of Toghani and Uribe (2022): not proven, assumptions broken: 4" in out
        assert re.search(r"broken +T = 700 is below 160 L \(Q \+ 7\)\(τ \+ 1\)³ = 6400 ", out)
        assert re.search(r"holds +server_lr = 1 is equal to 1 ", out)
        assert re.search(r"given +every f_i is L-smooth, L = 0.5 ", out)
        assert "η = 0.5 (local.lr)" in out
        assert "G = 3" not in out
        assert "Recommended: local.lr = 0.0178174\n" in out  # 1/(3·√350)
        assert "fedavg: no theorem" in out

    def test_every_option_arrives(self, offbeat: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        told = []
        monkeypatch.setattr(theory_report, "theory_reports", lambda *arguments: told.append(arguments) or {})
        assert offbeat("theory", "bound", "tiny.toml", *OPTIONS, "--algorithm", "fedavg")[0] == 0
        ((_, labels, known),) = told
        assert list(labels) == ["fedavg"]
        assert known == Known(
            smoothness=0.5, initial_error=2, variance=4, diversity=0.3, gradient_bound=3, max_staleness=1, rounds=700
        )

    def test_only_some_algorithms(self, offbeat: Command) -> None:
        code, out, _ = offbeat("theory", "bound", "tiny.toml", "--algorithm", "fedavg")
        assert code == 0
        assert "fedavg" in out
        assert "fedbuff:" not in out

    def test_a_proven_bound_and_an_infinite_one(self, offbeat: Command) -> None:
        table = "algorithms={ fedlaavg = { cohort = 20, weighting = 'uniform' }, fedluck = {} }"
        _, out, _ = offbeat("theory", "bound", "tiny.toml", *OPTIONS, "--set", table, "--set", "local.steps=1")
        assert "fedlaavg: Theorem 3 of Yan et al. (2020): proven if the given assumptions hold" in out
        assert re.search(r'fedluck: the bound of "Theory for FedLuck", mended: not proven.*\nno bound\n', out)

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            ((), "offbeat: constants are missing: give --rounds, --max-staleness, --smoothness, "),
            (("--algorithm", "fedbuf"), "offbeat: --algorithm fedbuf: did you mean 'fedbuff'? "),
            ((*OPTIONS, "--smoothness", "-1"), "offbeat: algorithms.fedbuff: smoothness must be a finite number "),
        ],
    )
    def test_a_mistake_is_one_line(self, offbeat: Command, arguments: tuple[str], line: str) -> None:
        code, out, err = offbeat("theory", "bound", "tiny.toml", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(line)
        assert err.count("\n") == 1


GOOD = Row("whose claim", "where", 2.0, 0.125, 4.0)
COUNTER = Row("misprint", "there", 5.0, 0.0, 4.0, should_hold=False)
BAD = Row("wrong claim", "here", 5.0, 0.125, 4.0)


def test_the_table_has_all_rows(offbeat, monkeypatch):
    seeds = []
    monkeypatch.setattr(theory, "check", lambda number: seeds.append(number) or [GOOD, COUNTER])
    code, out, err = offbeat("theory", "measure")
    assert (code, err, seeds) == (0, "", [20])
    assert re.search(r"whose claim +where +2 ± 0\.12 +4 +0\.5 +holds ", out)
    assert re.search(r"misprint +there +5 +4 +1\.25 +broken, as expected ", out)


def test_an_unexpected_row_is_marked_and_ends_with_1(offbeat, monkeypatch):
    monkeypatch.setattr(theory, "check", lambda _: [GOOD, BAD])
    code, out, _ = offbeat("theory", "measure")
    assert code == 1
    assert re.search(r"wrong claim +here .* UNEXPECTED ", out)
