"""Theorems: a bound, measured as one of its numbers grows."""

import json
from pathlib import Path

import pytest

from offbeat.errors import OffbeatError
from papers.figures.catalogue import find, read_all
from papers.theory.measured_bound import Row
from papers.theory.sweeps import Point, slope, sweep

THEOREM = """
[reproduction]
paper = "A paper"
figure = "Theorem 9"
question = "How it grows."

[scales.quick]
minutes = 0.1

[theory]
seeds = 4

[theory.sweeps]
async_comm_sgd_rounds = [100, 400]
fedbuff_staleness = [0, 1]

[[claims]]
name = "It falls"
quantity = "slope"
of = "async_comm_sgd_rounds"
relation = "at most"
value = 0.0
paper = "it does"

[[claims]]
name = "It is tight"
quantity = "smallest_ratio"
of = "async_comm_sgd_rounds"
relation = "at least"
value = 0.9
paper = "it is not said"

[[claims]]
name = "It holds"
quantity = "largest_ratio"
of = "fedbuff_staleness"
relation = "at most"
value = 1.0
paper = "Theorem 9"
"""


@pytest.fixture
def theorem(experiments):
    path = experiments / "paper" / "theorem9.toml"
    path.write_text(THEOREM, encoding="utf-8")
    return path


def test_each_claim_has_its_verdict(theorem, papers):
    code, out, err = papers("paper/theorem9")
    assert (code, err) == (0, "")
    lines = {name: next(line for line in out.splitlines() if name in line) for name in ("falls", "tight", "It holds")}
    assert lines["falls"].rstrip().endswith("holds")
    assert lines["tight"].rstrip().endswith("does not hold")
    assert "at most 1 " in lines["It holds"]
    folder = Path("runs/reproduce/paper/theorem9-quick")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "| It falls | it does | power of the number, async_comm_sgd_rounds: -" in (folder / "page.md").read_text(
        encoding="utf-8"
    )


def test_what_was_measured_is_not_measured_again(theorem, papers):
    papers("paper/theorem9")
    result = Path("runs/reproduce/paper/theorem9-quick/points.json")
    before = result.stat().st_mtime_ns
    papers("paper/theorem9")
    assert result.stat().st_mtime_ns == before
    assert "quick: holds" in papers("--list")[1].partition("theorem9")[2]
    theorem.write_text(THEOREM.replace("seeds = 4", "seeds = 5"), encoding="utf-8")
    assert "quick: holds" not in papers("--list")[1].partition("theorem9")[2]
    papers("paper/theorem9")
    assert json.loads(result.read_text())["theory"]["seeds"] == 5


def test_it_is_listed_beside_the_others(theorem):
    assert [one.name for one in read_all(Path("papers"))] == ["paper/fig1", "paper/theorem9"]


def test_a_scale_that_it_has_not_is_one_line(theorem, papers):
    code, _, err = papers("paper/theorem9", "--scale", "full")
    assert (code, err) == (2, "python -m papers: paper/theorem9: no scale full; choose from quick\n")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("fedbuff_staleness = [0, 1]", "fedbuff_stale = [0, 1]", "fedbuff_staleness"),
        ("[100, 400]", "[0, 400]", "values must be 1 or more"),
        ("[100, 400]", "[100]", "async_comm_sgd_rounds"),
        ('of = "async_comm_sgd_rounds"', 'of = "async_comm_sgd_gap"', "async_comm_sgd_rounds"),
        ('quantity = "largest_ratio"', 'quantity = "slope"', "a slope needs values above 0"),
        ("seeds = 4", "seeds = 1", "seeds"),
        ("[scales.quick]", "[scales.tiny]", "scales"),
    ],
)
def test_what_is_wrong_is_one_line(theorem, before, after, message):
    assert before in THEOREM
    theorem.write_text(THEOREM.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message) as caught:
        find("paper/theorem9", Path("papers"))
    assert "\n" not in str(caught.value)


def test_slope_of_a_power():
    points = [Point(x, Row("c", "s", 3 * x**-1.5, 0.0, 1.0)) for x in (1.0, 10.0, 1000.0)]
    assert slope(points) == pytest.approx(-1.5)


NUMBERS = {
    "fedbuff_server_steps": "T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_staleness": "T = 32400, Q = 2, K = 2, τ = {}",
    "fedbuff_buffer_size": "T = 32400, Q = 2, K = {}, τ = 1",
    "fedbuff_steps": "T = 32400, Q = {}, K = 2, τ = 1",
    "fedbuff_batch_size": "T = 32400, Q = 2, K = 2, τ = 1",
    "fedbuff_least_squares": "least squares, N = 8, n = 20, d = 3; uniform arrivals, T = {}, Q = 2, K = 2, τ = 1",
    "fedbuff_unequal_arrivals": "centres ±1; 0.9 / 0.1 arrivals, T = {}, Q = 1, K = 1, τ = 0",
    "async_comm_sgd_rounds": "N = 8, d = 2; full(4), Δ = 4, T = {}",
    "async_comm_sgd_clients": "N = {}, d = 2; full(4), Δ = 4, T = 4000",
    "async_comm_sgd_gap": "N = 8, d = 2; full({0}), Δ = {0}, T = 4000",
    "async_comm_sgd_drift_rounds": "unequal steepness, N = 2, d = 1; full(16), Δ = 16, T = {}",
    "async_comm_sgd_drift_gap": "unequal steepness, N = 2, d = 1; full({0}), Δ = {0}, T = 4000",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_sweep_varies_what_it_says_and_nothing_else(name):
    value = 6 if NUMBERS[name].count("T = {}") == 0 else 6000
    (point,) = sweep(name, (value,), 2)
    assert NUMBERS[name].format(value) in point.row.setting
    assert point.value == value
    assert point.row.should_hold is (name not in ("fedbuff_staleness", "fedbuff_unequal_arrivals"))


def test_a_larger_batch_has_less_noise():
    one, many = (point.row for point in sweep("fedbuff_batch_size", (1, 64), 2))
    assert many.bound < one.bound
    assert many.measured < one.measured


def test_the_gap_grows_with_the_rounds():
    (point,) = sweep("async_comm_sgd_rounds_and_gap", (800,), 2)
    assert "Δ = 10, T = 800" in point.row.setting  # √(800 / 8)


def test_the_same_sweep_gives_the_same_numbers():
    assert sweep("async_comm_sgd_gap", (1, 4), 3) == sweep("async_comm_sgd_gap", (1, 4), 3)
