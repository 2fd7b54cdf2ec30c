import runpy
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from offbeat.advice.advice import advise
from offbeat.advice.evidence import KINDS, Row, benchmark_rows, choice_without, family, kind_of, rank
from offbeat.advice.schedule_facts import ScheduleFacts, schedule_facts
from offbeat.advice.starting_points import with_starting_points
from offbeat.report.population_statistics import population_statistics
from offbeat.runs.directory import read, read_client_time
from tests.runs.conftest import run  # noqa: F401 (a fixture)

SPEEDS = "population={{ clients = 20, step_seconds = {} }}"


@pytest.mark.parametrize("label", ["fedavg", "fedasync", "fedbuff"])
def test_the_facts_are_those_of_a_run(label, experiment, digits, run, tmp_path):  # noqa: F811
    here = experiment()
    run(here, "out", [label])
    wrote = read(tmp_path / "out" / f"{label}-seed1")
    facts = schedule_facts(here, label, digits)
    last = {name: column[-1] for name, column in wrote.history.items()}
    assert (facts.seconds, facts.is_whole, facts.clients) == (60.0, True, 20)
    assert (facts.versions, facts.counted, facts.unused, facts.lost) == tuple(
        last[name] for name in ("version", "counted", "unused", "lost")
    )
    assert facts.bytes_moved == last["bytes_down"] + last["bytes_up"]
    counted = wrote.events["outcome"] == "counted"
    stale = wrote.events["staleness"][counted]
    assert (facts.mean_staleness, facts.max_staleness) == (pytest.approx(stale.mean()), stale.max())
    assert facts.never_counted == 20 - len(set(wrote.events["client"][counted].tolist()))
    assert facts.waiting_share == read_client_time(wrote).waiting_share


def test_a_long_run_is_cut_and_its_numbers_are_scaled(experiment, digits):
    facts = schedule_facts(experiment("stop={ virtual_seconds = 6000.0 }"), "fedasync", digits, most_visits=50)
    assert not facts.is_whole
    assert facts.scale == pytest.approx(6000 / facts.seconds)
    assert facts.at_end(facts.versions) == round(facts.versions * facts.scale) > 10 * facts.versions
    by_updates = schedule_facts(
        experiment("stop={ updates = 400, virtual_seconds = 1e6 }"), "fedasync", digits, most_visits=50
    )
    assert by_updates.scale == pytest.approx(400 / by_updates.counted)


def test_what_cannot_run_has_a_line(experiment, digits):
    here = experiment("algorithms={ fedavg = { cohort = 30 } }")
    facts = schedule_facts(here, "fedavg", digits)
    assert facts == ScheduleFacts("fedavg", problem=facts.problem)
    assert "30" in facts.problem
    assert "20" in facts.problem
    assert "algorithms.fedavg" not in facts.problem


def test_the_catalogue_starts_from_the_files_numbers(experiment, digits):
    here = experiment("algorithms={ fedavg = { cohort = 8, over_selection = 1.5 } }")
    statistics = population_statistics(here, digits)
    found = with_starting_points(here, statistics)
    assert "fedavg" not in found
    assert "sequential_sgd" not in found
    assert found["fedbuff"] == {"concurrency": 8, "buffer_size": 2}
    assert found["feddyn"] == {"cohort": 8, "over_selection": 1.5}
    assert found["fedfa"] == {"concurrency": 8, "window": 2, "server_lr": 0.5}
    assert found["fedluck"]["period"] == pytest.approx(np.median(statistics.visit_seconds) / 2, rel=0.05)
    few = experiment("algorithms={ fedavg = { cohort = 100 } }")
    assert with_starting_points(few, statistics)["fedlaavg"] == {"cohort": 20}


def test_advice_names_what_works_and_a_command_that_runs(experiment, digits, save):
    advice = advise(here := experiment(), digits)
    assert advice.kind == "lossy"
    assert {one.label for one in advice.facts} >= {"fedavg", "fedbuff", "ringmaster", "mifa"}
    assert advice.candidates[0] == "fedavg"
    assert len(advice.candidates) == 3
    assert set(advice.settings()) == set(advice.candidates) - set(here.algorithms)
    words = shlex.split(advice.command(save("", "x.toml"), ["local.lr=0.2"]))
    assert words[:2] == ["offbeat", "compare"]
    assert words[3:5] == ["--set", "local.lr=0.2"]
    changes = [word for flag, word in pairwise(words) if flag == "--set"]
    labels = [word for flag, word in pairwise(words) if flag == "--algorithm"]
    assert labels == advice.candidates
    compared = experiment(*changes)
    assert set(labels) <= set(compared.algorithms)
    assert len(compared.seeds) == 5
    for label in labels:
        assert schedule_facts(compared, label, digits).versions == next(
            one.versions for one in advice.facts if one.label == label
        )
    assert len(here.algorithms) == 3  # the given experiment stays
    few = next(one for one in advice.facts if one.label == "mifa")
    assert any(line == f"mifa: would make {few.versions} versions in 1 min." for line in advice.warnings())
    assert "mifa" not in advice.candidates


def test_a_run_that_is_to_be_short_is_no_mistake(experiment, digits):
    advice = advise(experiment("stop={ versions = 5 }", "evaluate={ every_versions = 5 }"), digits)
    assert not [line for line in advice.warnings() if line.startswith(("fedavg", "fedbuff"))]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (["population.lossy={ fraction = 0.5, probability = 0.2 }"], "lossy"),
        ([SPEEDS.format("{ distribution = 'constant', value = 1.0 }")], "alike"),
        ([SPEEDS.format("{ distribution = 'lognormal', median = 1.0, sigma = 1.5 }")], "unequal"),
        (["population.availability={ name = 'alternating', period_seconds = 20.0 }"], "offline"),
    ],
)  # fmt: skip
def test_kinds_of_clients(changes, kind, experiment, digits):
    assert kind_of(population_statistics(experiment(*changes), digits)) == kind


def test_the_evidence_is_the_benchmarks():
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "advice.py"))
    assert script["EVIDENCE"].read_text(encoding="utf-8") == script["evidence"]()
    rows = benchmark_rows()
    assert {row.world for row in rows} == set(KINDS)
    (ringmaster,) = [row for row in rows if (row.world, row.algorithm) == ("longtail", "ringmaster")]
    assert (ringmaster.lead, ringmaster.below_best, ringmaster.is_near_best) == (
        pytest.approx(0.0317, abs=1e-3),
        0,
        True,
    )
    assert all(row.lead == 0 for row in rows if row.algorithm == "fedavg")
    assert not next(row for row in rows if (row.world, row.algorithm) == ("longtail", "fedavg")).is_near_best


def row(world, algorithm, accuracy):
    return Row(world, algorithm, accuracy, 0.0, 0.0, 0.0, 0.0, is_near_best=True)


def test_worlds_of_the_same_kind_count_three_times_and_families_once():
    rows = [row(world, "fedbuff", 0.5) for world in ("calm", "longtail", "cifar10-longtail", "silo")]
    rows += [row("calm", "a", 0.56), row("longtail", "a", 0.49), row("cifar10-longtail", "a", 0.47)]
    # a: (0.06 · 3 − 0.02) / 4 where clients are alike, (0.06 − 0.02 · 3) / 4 where they are unequal.
    rows += [row("silo", "b", 0.51)]
    assert rank(rows, "alike", ["a", "b", "fedbuff", "unknown"]) == ["a", "b", "fedbuff"]
    assert rank(rows, "unequal", ["a", "b"]) == ["b", "a"]


def test_a_world_left_out_takes_those_with_the_same_clients_along():
    assert (family("cifar10-longtail"), family("longtail"), family("calm")) == ("longtail", "longtail", "calm")
    rows = [row(world, name, 0.5) for world in KINDS for name in ("fedbuff", "a")]
    better = [
        replace(one, accuracy=0.9 if one.algorithm == "a" and family(one.world) == "longtail" else one.accuracy - 0.1)
        if one.algorithm == "a" else one
        for one in rows
    ]  # fmt: skip
    assert choice_without(better, "silo") == "a"
    assert choice_without(better, "sst2-longtail") == "fedbuff"
