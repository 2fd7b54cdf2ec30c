import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config import experiment_file
from offbeat_studies.papers.figures.catalogue import find, read_all
from offbeat_studies.papers.figures.figure_file import load
from studies.tests.papers.conftest import FIGURE, PANELS, assert_one_line, before_claims


def test_a_figure_is_read_at_its_scales(experiments):
    (found,) = read_all([experiments])
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
        (
            'quantity = "final"\nof = "fedavg"\nrelation = "at least"\nvalue = 0.15',
            'quantity = "bytes_to_target"\nof = "fedavg"\nrelation = "at least"\nthan_mean = ["fedavg", "fedasink"]',
            "did you mean 'fedasync'",
        ),
        ('quantity = "final"', 'quantity = "last"', "quantity"),
        ('quantity = "final"', 'quantity = "swing"', "last_seconds"),
        ("last_seconds = 10.0\n", "", "last_seconds or last_share"),
        ("last_seconds = 10.0\n", "last_seconds = 10.0\nlast_share = 0.3\n", "last_seconds or last_share"),
        ('quantity = "final"', 'quantity = "final"\nlast_share = 0.3', "last_seconds or last_share"),
        ("value = 0.15\n", "", "exactly one of than, than_mean and value"),
        ("target = 0.3\n", "", "bytes_to_target needs evaluate.target"),
        ('figure = "Figure 1"\n', "", "figure"),
        ("stop.virtual_seconds=20.0", "stop.virtual=20.0", "virtual"),
        ("[tool.papers.scales.quick]", "[tool.papers.scales.tiny]", "scales"),
        ("minutes = 0.1", "minutes = 0", "minutes"),
        ('quantity = "final"', 'quantity = "final"\nmeasure = "lost"', "measure: did you mean 'loss'"),
        ('quantity = "final"', 'quantity = "final"\nless = "fedavgg"', "did you mean 'fedavg'"),
    ],
)
def test_a_mistake_is_one_line(write, before, after, message):
    path = write(FIGURE, (before, after))
    assert_one_line(lambda: load(path), f"fig1.toml.*{message}")


def test_a_file_may_hold_several_panels(experiments, write):
    path = write(FIGURE + PANELS)
    few, many = load(path)
    assert (few.name, few.section.figure) == ("paper/fig1a", "Figure 1 (a)")
    assert few.section.question == "Digits, by softmax. With few."
    assert (len(few.claims), len(many.claims)) == (3, 6)
    # The panel that others are compared with is not compared with itself.
    assert (few.compared, many.compared) == ({}, {"a": few})
    assert [one.experiment("full").population.clients for one in (few, many)] == [5, 10]
    # A scale comes after the panel.
    assert [few.experiment(scale).stop.virtual_seconds for scale in ("quick", "full")] == [20.0, 30.0]
    assert [one.name for one in find("paper/fig1b", [experiments])] == ["paper/fig1b"]
    assert [one.name for one in find("paper/fig1", [experiments])] == ["paper/fig1a", "paper/fig1b"]


TWO_PANELS = """
[tool.papers.panels.a]
figure = "Figure 1 (a)"
question = "All."

[tool.papers.panels.b]
figure = "Figure 1 (b)"
question = "FedAsync."
without = ["fedavg"]
"""


def test_a_panel_may_leave_out_an_algorithm_that_another_one_runs(write):
    claims = [(f"value = {value}\n", f'value = {value}\npanels = ["a"]\n') for value in ("0.15", "0.999")]
    compared = ('than = "fedavg"\n', 'than = "fedavg"\nthan_panel = "a"\n')
    whole, part = load(write(before_claims(TWO_PANELS), *claims, compared))
    assert [list(one.experiment("full").algorithms) for one in (whole, part)] == [["fedavg", "fedasync"], ["fedasync"]]
    assert (part.compared, [claim.than_panel for claim in part.claims]) == ({"a": whole}, ["a"])


def test_a_claim_needs_the_algorithms_of_its_panel(write):
    path = write(FIGURE + PANELS, ('question = "With many."', 'question = "With many."\nwithout = ["fedavg"]'))
    assert_one_line(lambda: load(path), "claim 'FedAvg learns something': Allowed: fedasync")
    path = write(FIGURE + PANELS, ('question = "With many."', 'question = "With many."\nwithout = ["fedavgg"]'))
    assert_one_line(lambda: load(path), "paper/fig1b: without: .*did you mean 'fedavg'")


def test_a_panel_without_claims_is_refused(write):
    changes = [(f'paper = "{text}"', f'paper = "{text}"\npanels = ["b"]') for text in ("it does", "it is [sic]")]
    path = write(FIGURE + PANELS, *changes, ("factor = 1000.0\n", 'factor = 1000.0\npanels = ["b"]\n'))
    assert_one_line(lambda: load(path), "paper/fig1a has no claim: add one, or remove the panel")


def test_the_fingerprint_depends_on_settings_claims_and_compared_panels(write):
    def fingerprints(*change):
        few, many = load(write(FIGURE + PANELS, *([change] if change else [])))
        return few.fingerprint("quick"), many.fingerprint("quick")

    few, many = fingerprints()
    assert fingerprints("tolerance = 0.9", "tolerance = 0.9\nfactor = 1.0") == (few, many)
    assert fingerprints("With few.", "With hardly any.") == (few, many)
    # A claim of both panels may become two claims, one for each.
    assert fingerprints('panels = ["b"]', 'panels = ["b", "a"]')[1] == many
    # The claim that compares is none of the panel's that it is compared with.
    few_now, many_now = fingerprints("tolerance = 0.9", "tolerance = 0.8")
    assert few_now == few
    assert many_now != many
    few_now, many_now = fingerprints("population.clients=5", "population.clients=6")
    assert few_now != few
    assert many_now != many
