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


def test_a_panel_without_claims_is_refused(experiments):
    path = experiments / "paper" / "fig1.toml"
    claims = FIGURE.replace('paper = "it does"', 'paper = "it does"\npanels = ["b"]')
    claims = claims.replace('paper = "it is"', 'paper = "it is"\npanels = ["b"]')
    path.write_text(claims + PANELS, encoding="utf-8")
    with pytest.raises(OffbeatError, match="paper/fig1a has no claim: add one, or remove the panel"):
        load(path)
