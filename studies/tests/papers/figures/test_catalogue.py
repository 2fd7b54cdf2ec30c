import pytest
from offbeat_core.errors import OffbeatError

from offbeat_studies.papers.figures.catalogue import find, read_all
from studies.tests.papers.conftest import FIGURE, PANELS


def test_an_unknown_name_gets_a_suggestion(experiments):
    assert [one.name for one in find("paper/fig1", [experiments])] == ["paper/fig1"]
    assert [one.name for one in find("paper", [experiments])] == ["paper/fig1"]
    for name in ("paper/fig2", "fig1", "../experiments/paper/fig1"):
        with pytest.raises(OffbeatError, match=r"paper/fig1"):
            find(name, [experiments])


def test_two_figures_with_one_name_are_refused(experiments, write):
    write(FIGURE + PANELS)
    (experiments / "paper" / "fig1a.toml").write_text(FIGURE, encoding="utf-8")
    with pytest.raises(OffbeatError, match="two figures have the name paper/fig1a: rename a panel or a file"):
        read_all([experiments])


def test_a_folder_without_figures_is_refused(experiments, tmp_path):
    with pytest.raises(OffbeatError, match=r"no figure in .*elsewhere: name another folder by --experiments"):
        read_all([tmp_path / "elsewhere"])
