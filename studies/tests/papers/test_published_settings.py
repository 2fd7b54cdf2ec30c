"""The figures' files take from the papers and from their authors' code what these say."""

import tomllib
from pathlib import Path

import pytest

from offbeat_studies.papers.figures.catalogue import read_all
from offbeat_studies.papers.figures.figure_file import own_tables
from studies.tests.papers.conftest import EXPERIMENTS

ROOT = Path(__file__).parents[3]


def test_a_folder_has_one_paper_whose_tests_are_corrected_together(own_figures):
    papers = {}
    for figure in own_figures.values():
        papers.setdefault(figure.path.parent.name, set()).add(figure.section.paper)
    assert {folder: len(found) for folder, found in papers.items()} == dict.fromkeys(papers, 1)


def test_a_file_of_an_algorithm_names_the_command_that_tests_its_claims():
    files = {figure.path: figure for figure in read_all([ROOT / "experiments"])}
    assert len(files) == 8
    for path, figure in files.items():
        (scale,) = figure.scales
        option = "" if scale == "quick" else f" --scale {scale}"
        assert f"`offbeat papers algorithms/{path.stem}{option} --seeds 10` tests them." in path.read_text("utf-8")


def algorithms(pattern, name):
    """Return the tables of an algorithm in the files of a pattern, by file and label."""
    return {
        f"{path.stem}: {label}": table
        for path in sorted(EXPERIMENTS.glob(pattern))
        for label, table in tomllib.loads(path.read_text(encoding="utf-8")).get("algorithms", {}).items()
        if table.get("algorithm", label) == name
    }


@pytest.mark.parametrize(
    ("pattern", "name", "settings", "files"),
    [
        ("fedfa/*.toml", "fedbuff", {"staleness": {"name": "constant"}}, 5),
        ("fedfa/*.toml", "port", {"similarity_weight": 1.0, "staleness_weight": 3.0}, 4),
        ("fedlaavg/*.toml", "fedlaavg", {"weighting": "uniform"}, 5),
        ("fedlaavg/fig4.toml", "fedavg", {"weighting": "uniform"}, 1),
        ("patterns/*.toml", "async_comm_sgd", {"weighting": "uniform"}, 3),
    ],
)
def test_published_settings(pattern, name, settings, files):
    defaults = {"similarity_weight": 1.0}
    found = algorithms(pattern, name)
    assert len({key.partition(":")[0] for key in found}) == files
    for key, table in found.items():
        assert {setting: {**defaults, **table}.get(setting) for setting in settings} == settings, key


@pytest.mark.parametrize("pattern", ["fedluck/*.toml"])
def test_fedluck_chooses_from_all_shares_unless_one_is_fixed(pattern):
    found = algorithms(pattern, "fedluck")
    assert found
    for key, table in found.items():
        smallest, largest = table.get("compression", (0.01, 1.0))
        assert smallest == largest or (smallest, largest) == (0.01, 1.0), key


@pytest.mark.parametrize(
    ("name", "batch_size", "lr", "steps", "clients"),
    [
        ("fedlaavg/fig4e", 5, 0.01, 10, 1000),
        ("fedlaavg/fig5b", 5, 0.01, 10, 1000),
        ("patterns/fig1-fashion-mu0", 20, 0.1, 50, 10),
    ],
)
def test_the_papers_settings_at_full_scale(name, batch_size, lr, steps, clients, own_figures):
    found = own_figures[name].experiment("full")
    assert (found.local.batch_size, found.local.lr, found.local.steps) == (batch_size, lr, steps)
    assert found.population.clients == clients
    assert Path(found.data.name.partition(":")[0]).resolve() == EXPERIMENTS / "unit_pixels.py"


def test_fedprox_has_the_papers_mu_at_full_scale(own_figures):
    assert own_figures["fedlaavg/fig4e"].experiment("full").algorithms["fedprox"].local["mu"] == 1.0


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*/*.toml")), ids=lambda path: path.stem)
def test_a_tuned_value_can_be_inside_its_grid(path):
    """Claims about values at the edge of a grid stay open, and of two numbers both are at the edge."""
    tuning = own_tables(tomllib.loads(path.read_text(encoding="utf-8"))).get("tuning", {})
    for grid in (tuning.get("all", {}), *tuning.get("own", {}).values()):
        assert {key for key, values in grid.items() if len(values) == 2} == set()


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("fedfa/table*.toml")), ids=lambda path: path.stem)
def test_fedfas_tables_tune_the_learning_rate_and_the_server_step_of_every_algorithm(path):
    """The paper's server step is not known, so that an algorithm must not be judged by one that we chose."""
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    tuning = own_tables(file)["tuning"]
    for label, table in file["algorithms"].items():
        kind = table.get("algorithm", label)
        step = {"fedasync": "mixing_alpha"}.get(kind, "server_lr")
        has_none = table.get("transmit") == "params" or label == "fedfa-delta-1"  # the latter is named after its step
        tuned = set(tuning["own"].get(label, tuning["all"]))
        assert tuned == ({"local.lr"} if has_none else {"local.lr", step}), label


@pytest.mark.parametrize("name", ["table2", "table2_cifar10", "table2_sst2", "table2_users", "table5"])
def test_fedfas_steps_move_the_model_as_far_as_fedbuffs(name):
    """An upload moves it by server_lr in FedFa-Delta, by server_lr / K in FedBuff."""
    file = tomllib.loads((EXPERIMENTS / "fedfa" / f"{name}.toml").read_text(encoding="utf-8"))
    tuning = own_tables(file)["tuning"]
    grids = {label: tuning["own"].get(label, tuning["all"]) for label in file["algorithms"]}
    pairs = (
        [("fedfa-delta", "fedbuff")] if name != "table5" else [(f"fedfa-{m}", f"fedbuff-{m}") for m in (2, 5, 10, 20)]
    )
    for fedfa, fedbuff in pairs:
        assert file["algorithms"][fedbuff]["buffer_size"] == 5
        assert [5 * step for step in grids[fedfa]["server_lr"]] == pytest.approx(grids[fedbuff]["server_lr"]), fedfa
