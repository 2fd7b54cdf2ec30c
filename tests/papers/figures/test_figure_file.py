import pytest

from offbeat.config import experiment_file
from offbeat.errors import OffbeatError
from papers.figures.catalogue import find, read_all
from papers.figures.figure_file import load
from tests.papers.conftest import FIGURE, PANELS


def test_a_figure_is_read_at_its_scales(experiments):
    (found,) = read_all(experiments)
    assert (found.name, found.section.figure, list(found.scales)) == ("paper/fig1", "Figure 1", ["quick", "full"])
    assert [claim.of for claim in found.claims] == ["fedavg", "fedavg", "fedasync"]
    assert found.experiment("quick").stop.virtual_seconds == 20.0
    assert found.experiment("full").stop.virtual_seconds == 40.0
    with pytest.raises(OffbeatError, match="paper/fig1: no scale medium; choose from quick, full"):
        found.experiment("medium")


def test_a_figure_file_is_also_an_experiment(experiments):
    assert experiment_file.load(experiments / "paper" / "fig1.toml").seeds == (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('of = "fedavg"', 'of = "fedavgg"', "did you mean 'fedavg'"),
        ('than = "fedavg"', 'than = "other"', "'FedAsync sends as much'"),
        ('quantity = "final"', 'quantity = "last"', "quantity"),
        ('quantity = "final"', 'quantity = "swing"', "last_seconds"),
        ("last_seconds = 10.0\n", "", "last_seconds"),
        ("value = 0.15\n", "", "exactly one of than and value"),
        ("target = 0.3\n", "", "bytes_to_target needs evaluate.target"),
        ('figure = "Figure 1"\n', "", "figure"),
        ("stop.virtual_seconds=20.0", "stop.virtual=20.0", "virtual"),
        ("[scales.quick]", "[scales.tiny]", "scales"),
        ("minutes = 0.1", "minutes = 0", "minutes"),
        ('quantity = "final"', 'quantity = "final"\nmeasure = "lost"', "measure: did you mean 'loss'"),
        ('quantity = "final"', 'quantity = "final"\nless = "fedavgg"', "did you mean 'fedavg'"),
    ],
)
def test_a_mistake_is_one_line(experiments, before, after, message):
    assert before in FIGURE
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert "fig1.toml" in str(caught.value)


def test_an_unknown_name_gets_a_suggestion(experiments):
    assert [one.name for one in find("paper/fig1", experiments)] == ["paper/fig1"]
    assert [one.name for one in find("paper", experiments)] == ["paper/fig1"]
    for name in ("paper/fig2", "fig1", "../experiments/paper/fig1"):
        with pytest.raises(OffbeatError, match=r"paper/fig1"):
            find(name, experiments)


def test_a_file_may_hold_several_panels(experiments):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE + PANELS, encoding="utf-8")
    few, many = load(path)
    assert (few.name, few.section.figure) == ("paper/fig1a", "Figure 1 (a)")
    assert few.section.question == "Digits, by softmax. With few."
    assert (len(few.claims), len(many.claims)) == (3, 6)
    # The panel that others are compared with is not compared with itself.
    assert (few.compared, many.compared) == ({}, {"a": few})
    assert [one.experiment("full").population.clients for one in (few, many)] == [5, 10]
    # A scale comes after the panel.
    assert [few.experiment(scale).stop.virtual_seconds for scale in ("quick", "full")] == [20.0, 30.0]
    assert [one.name for one in find("paper/fig1b", experiments)] == ["paper/fig1b"]
    assert [one.name for one in find("paper/fig1", experiments)] == ["paper/fig1a", "paper/fig1b"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('panels = ["b"]', "panels = []", "panels"),
        ('panels = ["b"]', 'panels = ["c"]', "'It is said of one': panels: Allowed: a, b"),
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


def test_a_claim_may_compare_with_an_algorithm_that_only_the_other_panel_has(experiments):
    path = experiments / "paper" / "fig1.toml"
    other = '"population.clients=5", "algorithms.slow={ algorithm = \'fedasync\', concurrency = 1 }"'
    panels = PANELS.replace('"population.clients=5"', other).replace('than = "fedasync"', 'than = "slow"')
    path.write_text(FIGURE + panels, encoding="utf-8")
    few, many = load(path)
    assert "slow" not in many.experiment("quick").algorithms
    assert many.compared["a"] is few


def test_than_panel_needs_panels(experiments):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE.replace('than = "fedavg"', 'than = "fedavg"\nthan_panel = "a"'), encoding="utf-8")
    with pytest.raises(OffbeatError, match="than_panel: the file has no \\[panels\\]"):
        load(path)


def test_the_fingerprint_depends_on_settings_claims_and_compared_panels(experiments):
    path = experiments / "paper" / "fig1.toml"

    def fingerprints(before="", after=""):
        assert before in PANELS
        path.write_text(FIGURE + PANELS.replace(before, after), encoding="utf-8")
        few, many = load(path)
        return few.fingerprint("quick"), many.fingerprint("quick")

    few, many = fingerprints()
    assert fingerprints("tolerance = 0.9", "tolerance = 0.9\nfactor = 1.0") == (few, many)
    assert fingerprints("With few.", "With hardly any.") == (few, many)
    # The claim that compares is none of the panel's that it is compared with.
    few_now, many_now = fingerprints("tolerance = 0.9", "tolerance = 0.8")
    assert few_now == few
    assert many_now != many
    few_now, many_now = fingerprints("population.clients=5", "population.clients=6")
    assert few_now != few
    assert many_now != many


def test_two_figures_with_one_name_are_refused(experiments):
    (experiments / "paper" / "fig1.toml").write_text(FIGURE + PANELS, encoding="utf-8")
    (experiments / "paper" / "fig1a.toml").write_text(FIGURE, encoding="utf-8")
    with pytest.raises(OffbeatError, match="two figures have the name paper/fig1a: rename a panel or a file"):
        read_all(experiments)


def test_a_panel_without_claims_is_refused(experiments):
    path = experiments / "paper" / "fig1.toml"
    claims = FIGURE.replace('paper = "it does"', 'paper = "it does"\npanels = ["b"]')
    claims = claims.replace('paper = "it is"', 'paper = "it is"\npanels = ["b"]')
    path.write_text(claims + PANELS, encoding="utf-8")
    with pytest.raises(OffbeatError, match="paper/fig1a has no claim: add one, or remove the panel"):
        load(path)


def test_a_folder_without_figures_is_refused(experiments, tmp_path):
    with pytest.raises(OffbeatError, match="has no figure: use the folder papers/"):
        read_all(tmp_path / "elsewhere")
