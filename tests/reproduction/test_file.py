import pytest

from offbeat.errors import OffbeatError
from offbeat.experiments import config
from offbeat.reproduction.catalogue import all_in, find
from offbeat.reproduction.file import load
from tests.reproduction.conftest import FIGURE


def test_a_figure_is_read_at_its_scales(experiments):
    (found,) = all_in(experiments)
    assert (found.name, found.section.figure, list(found.scales)) == ("paper/fig1", "Figure 1", ["quick", "full"])
    assert [claim.of for claim in found.claims] == ["fedavg", "fedavg", "fedasync"]
    assert found.experiment("quick").stop.virtual_seconds == 20.0
    assert found.experiment("full").stop.virtual_seconds == 40.0
    with pytest.raises(OffbeatError, match="paper/fig1 has no scale medium: it has quick, full"):
        found.experiment("medium")


def test_it_is_an_experiment_like_any_other(experiments):
    assert config.load(experiments / "paper" / "fig1.toml").seeds == (1, 2)


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
    ],
)
def test_what_is_wrong_is_one_line(experiments, before, after, message):
    assert before in FIGURE
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(OffbeatError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert "fig1.toml" in str(caught.value)


def test_a_name_that_is_wrong_is_told_the_nearest(experiments):
    assert find("paper/fig1", experiments).name == "paper/fig1"
    for name in ("paper/fig2", "fig1", "../experiments/paper/fig1"):
        with pytest.raises(OffbeatError, match=r"paper/fig1"):
            find(name, experiments)


def test_a_folder_without_figures_is_one_line(experiments, tmp_path):
    with pytest.raises(OffbeatError, match="holds no figure: take the folder experiments/"):
        all_in(tmp_path / "elsewhere")
