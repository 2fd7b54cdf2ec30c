import math

import pytest

from offbeat_studies.papers.displacement.setting import Setting
from studies.tests.papers.displacement.studies import collapse, study

FEDBUFF, FEDFA = Setting("fedbuff", 5, 10, 0.5), Setting("fedfa", 5, 10, 0.5)


def test_the_right_branch_is_from_the_best_displacement_to_twice_it():
    made = study(collapse)
    for setting in (FEDBUFF, FEDFA):
        assert [point.x for point in made.right_branch(setting)] == pytest.approx([1.0, 1.4, 2.0])
        assert not made.is_at_edge(setting)


def test_a_bounded_algorithm_has_its_values_from_a_given_x_on():
    found = [point.x for point in study(collapse).right_branch(Setting("fedasync", 1, 10, 0.5))]
    assert found == pytest.approx([0.35, 0.5, 0.7, 0.9])


def test_the_best_displacement_is_that_of_fedbuff_and_fedfa_together():
    def law(setting, displacement):  # FedFa alone would be best at x = 2, and has more to lose
        x = displacement * setting.delay
        return 100 * math.exp(2 * math.log(x / 2) ** 2 if setting.kind == "fedfa" else 0.5 * math.log(x) ** 2)

    made = study(law, noise=0.001)
    assert made.best(FEDBUFF) == made.best(FEDFA) == pytest.approx(2.0 / 11)


def test_a_run_that_missed_the_target_has_at_least_the_budget():
    made = study(lambda setting, displacement: 1e9, budget=300)
    point = made.points[0]
    assert made.log_uploads(point, 10) == (math.log(300), math.inf)
    assert made.logs(point, [10, 11]) == [math.log(300)] * 2
