import math

import pytest

from offbeat_studies.papers.displacement.claims import DisplacementClaim, finding, for_each_concurrency
from studies.tests.papers.displacement.studies import collapse, study

RATIO = {"quantity": "ratio", "of": "fedfa", "size": 5, "at_work": 10, "low": 0.9, "high": 1.1}
PREDICTION = {"quantity": "prediction", "of": "fedfa", "at_work": 10, "low": 0.8, "high": 1.25}
BEST = {"quantity": "best", "of": "all", "low": -1.2, "high": -0.8}


def found(law, table, **options):
    return finding(study(law, **options), DisplacementClaim.model_validate({"name": "A claim", "paper": "–"} | table))


@pytest.mark.parametrize(
    "table",
    [
        RATIO,
        RATIO | {"size": 20},
        PREDICTION,
        PREDICTION | {"of": "fedbuff"},
        PREDICTION | {"of": "fedasync"},
        PREDICTION | {"of": "fedfa-params"},
        PREDICTION | {"of": "all", "size": 20},
        PREDICTION | {"of": "small lr"},
        BEST,
    ],
)
def test_each_claim_is_for_the_hypotheses_where_they_hold(table):
    one = found(collapse, table)
    assert one.is_for
    assert one.p < 0.002
    assert one.obstacle == ""
    expected = -1 if table is BEST else 1
    assert one.effect.value == pytest.approx(expected, abs=0.06)
    assert one.n == len(one.ours_by_seed) == 10


def test_an_algorithm_that_is_slower_beyond_the_best_displacement_is_found():
    def law(setting, displacement):
        slower = 1.4 if setting.kind == "fedfa" and displacement * setting.delay > 0.3 else 1.0
        return slower * collapse(setting, displacement)

    ratio, prediction = found(law, RATIO), found(law, PREDICTION)
    assert not ratio.is_for
    assert ratio.p < 0.001
    assert ratio.effect.value == pytest.approx(1.4, rel=0.05)
    assert not prediction.is_for
    assert prediction.p < 0.001


def test_a_difference_on_the_trivial_left_branch_does_not_count():
    def law(setting, displacement):
        faster = 0.7 if setting.kind == "fedfa" and displacement * setting.delay < 0.4 else 1.0
        return faster * collapse(setting, displacement)

    assert found(law, RATIO).is_for


def test_noise_leaves_the_claim_open_for_both_verdicts():
    one = found(collapse, RATIO, noise=0.8)
    assert one.p > 0.05


def test_a_delay_that_leaves_out_the_wait_is_found():
    def law(setting, displacement):  # the uploads depend on M alone
        x = displacement * (setting.at_work - 1)
        return 10 * (setting.at_work - 1) * math.exp(0.5 * math.log(x) ** 2)

    one = found(law, PREDICTION | {"of": "all", "size": 20, "at_work": 5})
    assert not one.is_for
    assert one.p < 0.001


def test_a_best_displacement_that_does_not_depend_on_the_delay_is_found():
    def law(setting, displacement):
        return 100 * math.exp(0.5 * math.log(displacement / 0.08) ** 2)

    one = found(law, BEST)
    assert not one.is_for
    assert one.effect.value == pytest.approx(0, abs=0.3)
    assert one.p < 0.001


def test_a_step_size_whose_norm_does_not_count_is_found():
    def law(setting, displacement):  # c alone counts
        return collapse(setting, displacement / (0.25 if setting.lr == 0.1 else 1))

    one = found(law, PREDICTION | {"of": "small lr"}, norm=0.25)
    assert not one.is_for
    assert one.p < 0.001


def test_runs_that_never_arrive_are_bounds():
    def law(setting, displacement):
        lost = setting.kind == "fedfa" and displacement * setting.delay > 1.9
        return 1e9 if lost else collapse(setting, displacement)

    one = found(law, RATIO)
    assert one.method == "paired t of bounds on log ratios"
    assert not one.is_for
    assert one.p < 0.001  # a sign test of ten pairs has at least 0.002
    assert one.effect.value is None
    assert one.effect.low > 1.1
    assert one.ours_by_seed == (None,) * 10


def test_a_best_value_at_the_edge_is_an_obstacle():
    one = found(lambda setting, displacement: 20 / displacement, RATIO)
    assert one.obstacle == "the best displacement is at the edge of the tried values"


def test_a_claim_without_m_is_tested_for_each_as_one_statement():
    one = DisplacementClaim.model_validate({"name": "A claim", "paper": "–"} | RATIO | {"at_work": None})
    power = DisplacementClaim.model_validate({"name": "A power", "paper": "–"} | BEST)
    expanded = for_each_concurrency([one, power], [5, 20])
    assert [claim.name for claim in expanded] == ["A claim, M = 5", "A claim, M = 20", "A power"]
    assert [claim.at_work for claim in expanded] == [5, 20, None]
    assert [claim.statement for claim in expanded] == ["A claim", "A claim", ""]
