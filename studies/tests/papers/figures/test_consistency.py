import pytest

from offbeat_studies.papers.figures.figure_file import load
from studies.tests.papers.conftest import FIGURE, PANELS, assert_one_line


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('panels = ["b"]', "panels = []", "panels"),
        ('panels = ["b"]', 'panels = ["c"]', "'It holds for one': panels: Allowed: a, b"),
        ("population.clients=5", "population.clients=0", "clients"),
        ("[tool.papers.panels.b]", '[tool.papers.panels."b/c"]', "panels"),
        ('than_panel = "a"', 'than_panel = "c"', "'More clients are no slower': than_panel: Allowed: a, b"),
        ('than_panel = "a"', 'than_panel = "b"', "than_panel = 'b' must be above the panels"),
        ('than_panel = "a"', 'than_panel = "a"\npanels = ["a"]', "than_panel = 'a' must be above the panels"),
        ('than = "fedasync"\n', "value = 0.5\n", "than_panel needs than"),
        ('than = "fedasync"', 'than = "fedasink"', "than_panel = 'a' has no fedasink: did you mean 'fedasync'"),
        (
            'than_less = "fedasync"',
            'than_less = "fedasink"',
            "than_panel = 'a' has no fedasink: did you mean 'fedasync'",
        ),
        ('"population.clients=5"', '"seeds=[1]"', "the same seeds, evaluate.metrics, better and target"),
        ('"population.clients=5"', '"evaluate.target=0.4"', "the same seeds, evaluate.metrics, better and target"),
        (
            '"population.clients=5"',
            "\"evaluate={ every_seconds = 5.0, target = 0.3, metrics = ['mae'], better = 'higher' }\"",
            "the same seeds, evaluate.metrics, better and target",
        ),
    ],
)
def test_a_mistake_in_a_panel_is_one_line(write, before, after, message):
    assert before in PANELS
    path = write(FIGURE + PANELS.replace(before, after))
    assert_one_line(lambda: load(path), message)


def test_than_panel_needs_panels(write):
    path = write(FIGURE, ('than = "fedavg"', 'than = "fedavg"\nthan_panel = "a"'))
    assert_one_line(lambda: load(path), r"than_panel: the file has no \[panels\]")


def test_a_claim_may_compare_with_an_algorithm_that_only_the_other_panel_has(write):
    other = '"population.clients=5", "algorithms.slow={ algorithm = \'fedasync\', concurrency = 1 }"'
    few, many = load(write(FIGURE + PANELS, ('"population.clients=5"', other), ('than = "fedasync"', 'than = "slow"')))
    assert "slow" not in many.experiment("quick").algorithms
    assert many.compared["a"] is few
