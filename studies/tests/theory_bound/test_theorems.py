"""Theorems in the setting of a file."""

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.theory import (
    async_comm_bound,
    fedbuff_bound,
    fedbuff_smallest_server_steps,
    fedbuff_step_size,
    fedlaavg_bound,
    fedluck_bound,
)
from offbeat_studies.theory_bound.constants import Known
from offbeat_studies.theory_bound.theory_report import theory_reports
from studies.tests.theory_bound.conftest import CONSTANT, KNOWN, UNIFORM, broken, one

NOT_PLAIN = " is set: steps are not plain gradient steps"


class TestFedBuff:
    def test_a_file_that_breaks_nothing(self, load):
        smallest = fedbuff_smallest_server_steps(steps=1, smoothness=0.5, max_staleness=1)
        assert smallest == 160 * 0.5 * 8 * 8
        lr = fedbuff_step_size(server_steps=5200, steps=1, smoothness=0.5)
        report = one(load({"fedbuff": {"staleness": CONSTANT}}, stop={"versions": 5200}, local={"lr": lr}))
        assert broken(report) == []
        by_hand = fedbuff_bound(
            server_steps=5200, steps=1, clients=20, max_staleness=1, smoothness=0.5, initial_error=2.0, variance=4.0,
            diversity=0.3, batch_size=8,
        )  # fmt: skip
        assert report.bound.value == by_hand.value
        assert report.recommended_lr == lr

    def test_too_few_server_steps(self, load):
        report = one(load({"fedbuff": {"staleness": CONSTANT}}))
        assert "T = 5000 is below 160 L (Q + 7)(τ + 1)³ = 5120" in broken(report)

    def test_each_thing_that_a_file_can_break(self, load):
        report = one(
            load(
                {"fedbuff": {"server_lr": 0.5}},
                population={"step_seconds": UNIFORM},
                local={"momentum": 0.5},
                stop={"updates": 70_000},
            )
        )
        lr = fedbuff_step_size(server_steps=7000, steps=1, smoothness=0.5)
        assert broken(report) == [
            "arrivals are not uniform: some clients come more often",
            f"the client step size = 0.1 is not 1/(Q√(LT)) = {lr:.6g}",
            "server_lr = 0.5 is not 1",
            "a stale update does not count in full",
            "local.momentum is set: steps are not plain gradient steps",
        ]
        assert [assumption.given for assumption in report.bound.assumptions] == [False] * 6 + [True] * 4

    def test_weights_count_only_as_far_as_updates_are_stale(self, load):
        experiment = load({"fedbuff": {"staleness": {"name": "hinge", "a": 1.0, "b": 3.0}}})
        text = "a stale update does not count in full"
        assert text not in broken(one(experiment, Known(**{**vars(KNOWN), "max_staleness": 3})))
        assert text in broken(one(experiment, Known(**{**vars(KNOWN), "max_staleness": 4})))

    def test_the_server_limits_staleness(self, load):
        experiment = load({"fedbuff": {}}, server={"max_staleness": 3})
        wanted = one(experiment, Known(**{**vars(KNOWN), "max_staleness": 3}))
        assert one(experiment, Known(**{**vars(KNOWN), "max_staleness": None})).bound == wanted.bound
        assert one(experiment).bound == one(load({"fedbuff": {}})).bound  # unless the user knows better

    def test_rules_of_the_server_and_privacy_are_not_plain_steps(self, load):
        norms = {"update_clip_norm": 1.0, "max_update_norm": 2.0, "max_step_norm": 3.0}
        experiment = load({"fedbuff": {}}, server={"aggregate": "krum", **norms})
        keys = ["server.aggregate", *(f"server.{norm}" for norm in norms)]
        assert [line.removesuffix(NOT_PLAIN) for line in broken(one(experiment)) if line.endswith(NOT_PLAIN)] == keys
        private = load({"fedbuff": {"privacy": {"clip_norm": 1.0}}})
        assert f"privacy{NOT_PLAIN}" in broken(one(private))


class TestFedLaAvg:
    def test_a_file_that_breaks_nothing(self, load):
        report = one(load({"fedlaavg": {"cohort": 6}}), Known(**{**vars(KNOWN), "max_staleness": 4}))
        assert broken(report) == []
        by_hand = fedlaavg_bound(
            rounds=5000, lr=0.1, clients=20, max_staleness=4, smoothness=0.5, initial_error=2.0, variance=0.5,
            gradient_bound=3.0,
        )  # fmt: skip
        assert report.bound.value == by_hand.value
        # β = 6/20, ⌈20/6⌉E − 1 ≥ 4 from E = 2 on
        assert report.recommended_lr == pytest.approx((0.3**0.5 * 20**0.25) / (2 * 0.5 * (2 * 5000) ** 0.5))

    def test_several_local_steps_have_appendix_cs_bound(self, load):
        known = Known(**{**vars(KNOWN), "max_staleness": 4})
        report, single = (one(load({"fedlaavg": {"cohort": 6}}, local={"steps": steps}), known) for steps in (4, 1))
        assert report.theorem == "Appendix C of Yan et al. (2020)"
        assert report.left_side == "(1/T) Σ_{r≤T} E‖∇f(x_{rC−1})‖²"
        assert single.theorem == "Theorem 3 of Yan et al. (2020)"
        assert broken(report) == []
        assert report.recommended_lr == pytest.approx(single.recommended_lr / 4)

    def test_the_step_size_is_limited(self, load):
        report = one(load({"fedlaavg": {"cohort": 20}}, stop={"versions": 4}))
        assert report.recommended_lr == 1 / (4 * 0.5)

    @pytest.mark.parametrize(
        "elsewhere",
        [
            {"population": {"availability": {"name": "bernoulli", "probability": 0.5, "round_seconds": 9.0}}},
            {"server": {"lease_seconds": 60.0}},
        ],
    )
    def test_with_all_clients_available_lemma_2_bounds_the_staleness(self, load, elsewhere):
        known = Known(**{**vars(KNOWN), "max_staleness": None})
        report = one(load({"fedlaavg": {"cohort": 6}}), known)
        assert next(constant.value for constant in report.constants if constant.symbol == "I") == 3
        assert broken(report) == []
        with pytest.raises(OffbeatError, match="give --max-staleness for fedlaavg; or select"):
            one(load({"fedlaavg": {"cohort": 6}}, **elsewhere), known)

    def test_each_thing_that_a_file_can_break(self, load):
        table = {"cohort": 6, "server_lr": 2.0, "server_optimizer": {"name": "adam"}}
        report = one(load({"fedlaavg": table}, local={"steps": 4, "lr": 1.0}))
        assert broken(report) == [
            "γ = 1 is not below 1/(2L) = 1",
            "server_lr = 2 is not 1",
            "I = 1 is below ⌈N/K⌉ − 1 = 3",
            "server_optimizer is set: steps are not plain gradient steps",
        ]

    def test_a_cohort_that_is_too_large(self, load):
        with pytest.raises(OffbeatError, match=r"^algorithms\.fedlaavg: cohort must be at most .*20, got 21$"):
            one(load({"fedlaavg": {"cohort": 21}}))


class TestAsyncCommSGD:
    def test_a_round_of_several_steps_is_several_rounds(self, load):
        experiment = load(
            {"async_comm_sgd": {"period": 3.5}}, local={"steps": 3, "lr": 0.01}, stop={"virtual_seconds": 1050.0}
        )
        report = one(experiment)
        assert broken(report) == []
        by_hand = async_comm_bound(
            rounds=900, lr=0.01, clients=20, max_gap=30, smoothness=0.5, initial_error=2.0, gradient_bound=3.0,
            variance=0.5,
        )  # fmt: skip
        assert report.bound.value == by_hand.value
        assert report.recommended_lr == pytest.approx(1 / 9)  # √20/(½·√900) is more
        longer = one(load({"async_comm_sgd": {"period": 3.0}}, stop={"versions": 10**6}))
        assert longer.recommended_lr == pytest.approx(20**0.5 / (0.5 * 1000))

    def test_each_thing_that_a_file_can_break(self, load):
        report = one(load({"async_comm_sgd": {"server_lr": 0.5}}, local={"steps": 4, "clip_norm": 1.0, "lr": 0.2}))
        assert broken(report) == [
            "γ = 0.2 is above 1/(18L) = 0.111111",
            "4 steps of 1 s do not fit into a round of 1 s, so clients talk less often than the pattern says",
            "server_lr = 0.5 is not 1",
            "local.clip_norm is set: steps are not plain gradient steps",
        ]

    def test_steps_that_fill_a_round(self, load):
        full = {"step_seconds": {"distribution": "constant", "value": 0.5}}
        text = "2 steps of 0.5 s do not fit into a round of 1 s, so clients talk less often than"
        for period, filled in ((1.0, True), (1.01, False)):
            experiment = load({"async_comm_sgd": {"period": period}}, population=full, local={"steps": 2})
            assert any(line.startswith(text) for line in broken(one(experiment))) is filled

    def test_clients_that_go_away(self, load):
        away = {"availability": {"name": "alternating", "period_seconds": 10.0}}
        report = one(load({"async_comm_sgd": {}}, population=away))
        assert broken(report) == ["clients go offline or lose work, so they talk less often than the pattern says"]

    def test_decreasing_step_sizes_have_no_bound(self, load):
        experiment = load({"async_comm_sgd": {"step_sizes": {"name": "inverse_square_root"}}})
        (line,) = theory_reports(experiment, experiment.algorithms, Known()).values()
        assert isinstance(line, str)
        assert line.startswith("Theorem 2.4 needs one step size")

    def test_an_estimated_gap_is_marked(self, load):
        table = {"pattern": {"name": "random", "p": 1.0}, "period": 10.0}
        report = one(load({"async_comm_sgd": table}, local={"steps": 2, "lr": 0.01}, stop={"versions": 10**7}))
        (gap,) = [constant for constant in report.constants if constant.symbol == "Δ"]
        assert gap.value == 2
        assert gap.source == "local.steps · pattern random, exceeded with probability at most 1 %"


@pytest.mark.parametrize("name", ["fedlaavg", "async_comm_sgd"])
def test_clients_of_different_sizes_count_equally_only_if_weighted_uniformly(load, name):
    table = {"cohort": 20} if name == "fedlaavg" else {"period": 2.0}
    skewed = {"partition": {"name": "dirichlet", "alpha": 0.3}}
    text = "clients do not count equally: some count more than 1/N"
    assert broken(one(load({name: table}, population=skewed, local={"lr": 0.01}))) == [text]
    assert broken(one(load({name: {**table, "weighting": "uniform"}}, population=skewed, local={"lr": 0.01}))) == []


class TestFedLuck:
    def test_a_file_that_breaks_nothing(self, load):
        table = {"period": 2.0, "steps": [3, 3], "compression": [0.5, 0.5]}
        report = one(load({"fedluck": table}, local={"lr": 0.3}, stop={"virtual_seconds": 90.0}))
        assert broken(report) == []
        by_hand = fedluck_bound(
            rounds=45, lr=0.3, server_lr=1.0, steps=3, compression=0.5, max_staleness=1, smoothness=0.5,
            initial_error=2.0, variance=0.5, heterogeneity=0.3, gradient_bound=3.0, arrivals_every_period=True,
        )  # fmt: skip
        assert report.bound.value == by_hand.value
        assert report.recommended_lr is None
        assert "every period has an arrival" in [each.text for each in report.bound.assumptions if each.given]

    @pytest.mark.parametrize("ranges", [{"steps": [3, 4]}, {"compression": [0.4, 0.5]}])
    def test_visits_differ_if_either_does(self, load, ranges):
        report = one(load({"fedluck": {"steps": [3, 3], "compression": [0.5, 0.5], **ranges}}, local={"lr": 0.3}))
        assert [line.split(":")[0] for line in broken(report)] == ["visits differ"]

    def test_an_algorithm_that_chooses_its_plans(self, load):
        report = one(load({"fedluck": {"steps": [2, 40], "compression": [0.1, 0.8], "server_lr": 3.0}}))
        assert broken(report) == [
            "η_l k = 0.2 is not between 0.592 and 1.408",
            "η_g = 3 is above min(1, 1/L) = 1",
            "visits differ: k from 2 to 40 and δ from 0.1 to 0.8",
        ]
        taken = {constant.symbol: constant.value for constant in report.constants}
        assert (taken["k"], taken["δ"]) == (2, 0.8)
