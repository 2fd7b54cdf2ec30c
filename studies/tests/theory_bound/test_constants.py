import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
from offbeat_core.lr_decay import exponential

from offbeat.algorithms import FedBuff, FedLuck, LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.algorithms.components.schedules import patterns as p
from offbeat.algorithms.components.server_optimizer import adam
from offbeat.config.experiment_sections import ServerSection, StopSection
from offbeat.config.population_sections import PopulationSection
from offbeat_studies.theory_bound import constants as theory_constants
from offbeat_studies.theory_bound.constants import (
    Constant,
    Known,
    counts_equally,
    is_always_available,
    is_in_time,
    is_uniform,
    longest_gap,
    minibatch_variance,
    plain_steps,
    rounds,
)

FILE = {"distribution": "uniform", "low": 1.0, "high": 2.0}
BERNOULLI = {"name": "bernoulli", "probability": 0.5, "round_seconds": 10.0}
ALTERNATING = {"name": "alternating", "period_seconds": 10.0}
LOSSY = {"fraction": 0.5, "probability": 0.5}
PLAN = LocalPlan(steps=3, batch_size=8, lr=0.1)


def population(**changes):
    return PopulationSection.model_validate({"clients": 4, **changes})


@pytest.mark.parametrize(
    ("stop", "how", "wanted"),
    [
        ({"versions": 70}, {}, (70, "stop.versions")),
        ({"updates": 70}, {"buffer_size": 20}, (3, "stop.updates")),
        ({"updates": 70}, {}, (None, "--rounds")),
        ({"virtual_seconds": 0.3}, {"period": 0.1}, (3, "stop.virtual_seconds")),
        ({"virtual_seconds": 0.39}, {"period": 0.1}, (3, "stop.virtual_seconds")),
        ({"virtual_seconds": 70.0}, {}, (None, "--rounds")),
        ({"versions": 5, "updates": 70}, {"buffer_size": 10}, (5, "stop.versions")),
        ({"versions": 9, "updates": 70}, {"buffer_size": 10}, (7, "stop.updates")),
        (
            {"versions": 5, "updates": 70, "virtual_seconds": 9.0},
            {},
            (5, "stop.versions, unless virtual_seconds or updates ends it sooner"),
        ),
    ],
)
def test_rounds_are_those_after_which_the_run_ends(stop, how, wanted):
    assert rounds(StopSection(**stop), Known(), **how) == Constant("T", *wanted)
    assert rounds(StopSection(**stop), Known(rounds=8), **how) == Constant("T", 8, "--rounds")


@pytest.mark.parametrize(
    ("changes", "concurrency", "wanted"),
    [
        ({}, 3, True),
        ({"availability": BERNOULLI}, 3, True),
        ({"availability": ALTERNATING}, 3, False),
        ({"availability": ALTERNATING}, 1, False),
        ({"step_seconds": FILE}, 3, False),
        ({"up_bytes_per_second": FILE}, 3, False),
        ({"down_bytes_per_second": FILE}, 3, False),
        ({"step_seconds": FILE}, 1, True),
        ({"step_seconds": FILE, "availability": BERNOULLI}, 1, False),
        ({"lossy": LOSSY}, 3, False),
        ({"lossy": LOSSY}, 1, False),
        ({"lossy": LOSSY, "availability": BERNOULLI}, 3, False),
    ],
)
def test_arrivals_are_uniform_where_clients_are_alike_or_come_one_by_one(changes, concurrency, wanted):
    assert is_uniform(population(**changes), concurrency) is wanted


@pytest.mark.parametrize(
    ("changes", "wanted"), [({}, True), ({"availability": BERNOULLI}, False), ({"lossy": LOSSY}, False)]
)
def test_who_is_always_available(changes, wanted):
    assert is_always_available(population(**changes)) is wanted


def test_only_constant_speeds_show_that_steps_do_not_fit_into_a_round():
    assert is_in_time(SimpleNamespace(population=population(step_seconds=FILE)), PLAN, 1.0).given
    assert not is_in_time(SimpleNamespace(population=population()), PLAN, 2.0).holds


@pytest.mark.parametrize(
    ("partition", "wanted"),
    [
        ({"name": "iid"}, True),
        ({"name": "by_hour", "alpha": 0.3}, True),
        ({"name": "quantity_skew", "sigma": 0.0}, True),
        ({"name": "quantity_skew", "sigma": 0.1}, False),
        ({"name": "dirichlet", "alpha": 0.3}, False),
        ({"name": "one_class"}, False),  # classes may differ in size
        ({"name": "mixing", "mu": 0.5}, False),
        ({"name": "by_user"}, False),
        ({"name": "file", "path": "/a.csv"}, False),
    ],
)
def test_clients_count_equally_by_examples_where_sizes_surely_are_equal(partition, wanted):
    assert counts_equally(population(partition=partition), "examples") is wanted
    assert counts_equally(population(partition=partition), "uniform")
    assert counts_equally(population(partition=partition, clients=1), "examples")


def test_a_minibatch_varies_less_than_an_example():
    assert minibatch_variance(Known(variance=4.0), PLAN).value == 0.5
    assert minibatch_variance(Known(), PLAN) == Constant("σ²", None, "--variance")


@pytest.mark.parametrize(
    "pattern", [p.full(3), p.round_robin(2, 3), p.imbalanced(), p.own(lambda c, last, n: last + 4, 4)]
)
def test_the_gap_of_a_regular_pattern_is_exact(pattern):
    assert longest_gap(pattern, 6, 5) == (pattern.longest_gap(6), f"pattern {pattern.name}")
    assert longest_gap(pattern, 6, 10**9) == longest_gap(pattern, 6, 5)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_of_a_random_pattern_is_looked_for(seed):
    pattern = p.random(0.3, seed=seed)
    longest = 0
    for client in range(4):
        talks = {0, 25} | {t for t in range(1, 25) if pattern.next_round(client, t - 1, 4) == t}
        times = sorted(talks)
        longest = max(longest, *(late - early for early, late in pairwise(times)))
    assert longest_gap(pattern, 4, 25) == (longest, "pattern random")


def test_with_many_clients_and_rounds_the_gap_of_a_random_pattern_is_estimated():
    # 1000 · (1 + 1998/2) = 10⁶ gaps begin, and 10⁶ · 2⁻²⁷ ≤ 0.01 < 10⁶ · 2⁻²⁶
    gap, source = longest_gap(p.random(0.5), 1000, 1998)
    assert gap == 27
    assert source == "pattern random, exceeded with probability at most 1 %"


def test_probability_1_has_gap_1():
    assert longest_gap(p.random(1.0), 10**4, 10**4)[0] == 1


def test_no_gap_is_longer_than_the_run():
    assert longest_gap(p.random(1e-4), 10**6, 50)[0] == 50


def test_the_estimated_gap_is_rarely_exceeded(monkeypatch):
    found = [longest_gap(p.random(0.3, seed=seed), 4, 60)[0] for seed in range(300)]
    monkeypatch.setattr(theory_constants, "_MOST_PAIRS", 0)
    limit, _ = longest_gap(p.random(0.3), 4, 60)
    allowed = 0.01 * 300 + 3 * math.sqrt(0.01 * 300)
    assert sum(gap > limit for gap in found) <= allowed
    assert sum(gap > limit - 6 for gap in found) > allowed  # 0.7⁻⁶ ≈ 8 times as often


def test_a_pattern_is_drawn_as_long_as_that_is_quick():
    assert "probability" not in longest_gap(p.random(0.5), 10, 1000)[1]


def test_plain_steps():
    (plain,) = plain_steps(FedBuff(), PLAN, ServerSection(aggregate="mean", lease_seconds=9.0), None)
    assert plain.holds
    # A plan with any field beyond its first three does not take plain steps.
    own = {
        "momentum": 0.5,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
        "compression": Compression("sign"),
        "error_feedback": True,
        "lr_decay": exponential(0.9),
    }
    broken = plain_steps(
        FedBuff(server_optimizer=adam()), LocalPlan(steps=3, batch_size=8, lr=0.1, **own), ServerSection(), None
    )
    assert [one.text.split(" is set")[0] for one in broken] == [
        "local.momentum", "local.weight_decay", "local.clip_norm", "local.error_feedback", "local.lr_decay",
        "local.compression", "server_optimizer",
    ]  # fmt: skip
    assert not any(one.holds for one in broken)
    for own in ({"mu": 0.1}, {"optimizer": "adamw"}):
        (broken,) = plain_steps(FedBuff(), LocalPlan(steps=3, batch_size=8, lr=0.1, **own), ServerSection(), None)
        assert broken.text.startswith(f"local.{next(iter(own))} is set")
        assert not broken.holds


def test_fedlucks_theorem_includes_compression_without_feedback():
    compression = Compression("top_k", (("share", 0.5),))
    plan = LocalPlan(steps=3, batch_size=8, lr=0.1, compression=compression)
    assert plain_steps(FedLuck(), plan, ServerSection(), None)[0].holds
    plan = LocalPlan(steps=3, batch_size=8, lr=0.1, compression=compression, error_feedback=True)
    assert not plain_steps(FedLuck(), plan, ServerSection(), None)[0].holds
