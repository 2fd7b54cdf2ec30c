"""Tuning before the runs with all seeds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from offbeat import units
from offbeat.data.catalogue import load_dataset
from offbeat.runs import directory as run_directory
from offbeat.worlds.population import build_population
from offbeat_studies.papers.figures.algorithms_table import worst_client_accuracy
from offbeat_studies.papers.figures.catalogue import find
from offbeat_studies.papers.figures.figure_file import load as load_figure
from offbeat_studies.papers.figures.tuning import best_points, tuning_lines, tuning_runs
from studies.tests.papers.conftest import FIGURE, RESULTS, assert_one_line, before_claims

pytestmark = pytest.mark.usefixtures("blank_pictures")

TUNING = """
[tool.papers.tuning]
seed = 7
set = ["stop.virtual_seconds=15.0"]

[tool.papers.tuning.all]
"local.lr" = [1e-9, 0.3]

[tool.papers.tuning.own.fedasync]
mixing_alpha = [1e-9, 0.5]
"""


FIG1 = RESULTS / "fig1-quick"
TUNED = FIGURE.replace('over = "updates"', 'over = "updates"\ntable = true') + TUNING


@pytest.fixture
def tuned(write):
    return write(TUNED)


def test_each_algorithm_is_run_at_each_point(tuned):
    (figure,) = load_figure(tuned)
    tries = figure.tuning_experiment("quick")
    assert tries.seeds == (7,)
    assert tries.stop.virtual_seconds == 15.0
    assert figure.experiment("quick").stop.virtual_seconds == 20.0
    assert list(tries.algorithms) == ["fedavg 0", "fedavg 1", "fedasync 0", "fedasync 1"]
    assert [tries.plan(label).lr for label in tries.algorithms] == [1e-9, 0.3, 0.1, 0.1]
    assert [tries.algorithm(f"fedasync {number}").mixing_alpha for number in (0, 1)] == [1e-9, 0.5]


PANELS = """
[tool.papers.panels.a]
figure = "Figure 1 (a)"
question = "All."

[tool.papers.panels.b]
figure = "Figure 1 (b)"
question = "FedAvg."
without = ["fedasync"]

"""


def test_a_panel_is_tuned_for_its_own_algorithms(write):
    of_both = ("factor = 1000.0\n", 'factor = 1000.0\npanels = ["a"]\n')
    _, part = load_figure(write(before_claims(PANELS) + TUNING, of_both))
    assert list(part.tuning_experiment("quick").algorithms) == ["fedavg 0", "fedavg 1"]
    lines = tuning_lines(part.tuning, {"fedavg": {"local.lr": 0.3}})
    assert "fedasync" not in "\n".join(lines)
    assert any("fedavg: `local.lr` 0.3" in line for line in lines)


def test_the_best_point_is_run_and_the_page_has_all_points(tuned, papers):
    code, _, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    (figure,) = find("paper/fig1", [Path("papers")])
    changes = {"fedavg": {"local.lr": 0.3}, "fedasync": {"mixing_alpha": 0.5}}
    tries = tuning_runs(figure, "quick", FIG1)
    assert best_points(figure, "quick", tries) == changes
    run = run_directory.read(FIG1 / "fedavg-seed1")
    assert run.config["local"]["lr"] == 0.3
    page = (FIG1 / "page.md").read_text(encoding="utf-8")
    assert "- tried with seed 7, `stop.virtual_seconds=15.0`: `local.lr` 1e-09 / 0.3" in page
    assert "- for fedasync instead: `mixing_alpha` 1e-09 / 0.5" in page
    assert "- best on average over the run: fedavg: `local.lr` 0.3; fedasync: `mixing_alpha` 0.5" in page
    assert "at the edge of the tried values, beyond which others may be better: fedavg, fedasync\n" in page
    seconds = sum(run_directory.read(path.parent).processor_seconds for path in FIG1.rglob("config.toml"))
    assert len(list(FIG1.rglob("config.toml"))) == 8  # four tries, four runs
    assert f"{units.duration(seconds)} of one core" in page
    assert "| | time to 30 % | sent by clients until then | accuracy at the end | of the worst client |" in page
    assert worst_client_accuracy(run) == pytest.approx(by_hand(run), abs=1e-12)


@pytest.mark.long
def test_changed_points_are_tried_and_the_rest_is_kept(tuned, write, papers):
    papers("paper/fig1", "--jobs", "1")
    write(TUNED, ("[1e-9, 0.3]", "[1e-9, 0.2]"))
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "3 of 4 runs are finished" in out  # of the tries
    assert "2 of 4 runs are finished" in out  # FedAsync's
    assert run_directory.read(FIG1 / "fedavg-seed1").config["local"]["lr"] == 0.2


def test_a_diverged_point_is_not_chosen_and_a_middle_value_is_not_at_the_edge(write, papers):
    write(TUNED, ("[1e-9, 0.3]", "[1e-9, 0.3, 3e38]"), ("[1e-9, 0.5]", "[0.5, 1e-9, 1e-8]"))
    code, _, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert run_directory.read(FIG1 / "fedavg-seed1").config["local"]["lr"] == 0.3
    tried = run_directory.read(FIG1 / "tuning" / "fedavg 2-seed7")
    assert np.isnan(tried.history["accuracy"][-1])
    assert tried.history["seconds"][-1] < 15.0
    assert "may be better: fedasync\n" in (FIG1 / "page.md").read_text(encoding="utf-8")


def by_hand(run):
    """Weigh each test example by how frequent its label is at a client; return what the worst one gets."""
    data = load_dataset("digits")
    tensors = {name.rpartition(".")[2]: tensor for name, tensor in load_file(run.path / "model.safetensors").items()}
    outputs = torch.from_numpy(data.test_inputs).flatten(1) @ tensors["weight"].T + tensors["bias"]
    right = (outputs.argmax(1).numpy() == data.test_labels).astype(float)
    found = []
    section = find("paper/fig1", [Path("papers")])[0].experiment("quick").population
    for shard in build_population(section, data, run.seed).shards:
        labels = data.train_labels[shard]
        weights = np.array([(labels == label).sum() / (data.test_labels == label).sum() for label in data.test_labels])
        found.append((weights * right).sum() / len(labels))
    return min(found)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("seed = 7", "seed = 1", "tuning.seed = 1 is one of the seeds"),
        ("[1e-9, 0.5]", "[0.5]", "each algorithm needs the same number of points, got .*'fedasync': 1"),
        ("own.fedasync", "own.fedasink", "tuning.own: did you mean 'fedasync'"),
        ('"local.lr"', '"local.learning_rate"', "learning_rate"),
        ("mixing_alpha", "mixing", "mixing"),
        ("[1e-9, 0.3]", "[-1.0, 0.3]", "lr"),
        ("virtual_seconds=15.0", "virtual_second=15.0", "stop"),
        ("target = 0.3\n", "", "reproduction.table needs classes, .* and evaluate.target"),
    ],
)
def test_a_mistake_is_one_line(write, before, after, message):
    path = write(TUNED, (before, after))
    assert_one_line(lambda: load_figure(path), message)
