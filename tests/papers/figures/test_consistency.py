import pytest

from offbeat.errors import OffbeatError
from papers.figures.figure_file import load
from tests.papers.conftest import FIGURE, PANELS


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('panels = ["b"]', "panels = []", "panels"),
        ('panels = ["b"]', 'panels = ["c"]', "'It holds for one': panels: Allowed: a, b"),
        ("population.clients=5", "population.clients=0", "clients"),
        ("[panels.b]", '[panels."b/c"]', "panels"),
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
def test_a_mistake_in_a_panel_is_one_line(experiments, before, after, message):
    assert before in PANELS
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE + PANELS.replace(before, after), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_than_panel_needs_panels(experiments):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE.replace('than = "fedavg"', 'than = "fedavg"\nthan_panel = "a"'), encoding="utf-8")
    with pytest.raises(OffbeatError, match="than_panel: the file has no \\[panels\\]"):
        load(path)


def test_a_claim_may_compare_with_an_algorithm_that_only_the_other_panel_has(experiments):
    path = experiments / "paper" / "fig1.toml"
    other = '"population.clients=5", "algorithms.slow={ algorithm = \'fedasync\', concurrency = 1 }"'
    panels = PANELS.replace('"population.clients=5"', other).replace('than = "fedasync"', 'than = "slow"')
    path.write_text(FIGURE + panels, encoding="utf-8")
    few, many = load(path)
    assert "slow" not in many.experiment("quick").algorithms
    assert many.compared["a"] is few
