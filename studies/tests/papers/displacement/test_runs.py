from itertools import pairwise

import numpy as np
import pytest
import torch

from offbeat_studies.papers.displacement import points
from offbeat_studies.papers.displacement.points import DisplacementSection, measure, read_points, settings
from offbeat_studies.papers.displacement.runs import mean_norm, uploads_to_target
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.displacement.world import World, accuracies, arrivals, train, visits
from studies.tests.papers.displacement.studies import SECTION

WORLD = World(
    clients=10,
    alpha=1.0,
    steps=2,
    batch_size=4,
    lr=0.1,
    spread=0.1,
    test_examples=100,
    target=0.95,
    every=5,
    budget=300,
)


def uploads(displacement, seeds=(1, 2), world=WORLD):
    setting = Setting("fedbuff", 5, 3, world.lr)
    return uploads_to_target([setting.algorithm(displacement) for _ in seeds], 3, seeds, world, world.lr)


def test_a_client_works_on_one_visit_at_a_time_and_delays_average_the_concurrency():
    order, assigned = arrivals(np.random.default_rng(1), 6, 4, 1000, 0.1)
    ends = {number: upload for upload, number in enumerate(order)}
    for client in range(6):
        visits_of = [number for number, one in enumerate(assigned) if one == client and number in ends]
        for before, after in pairwise(visits_of):
            assert after - 4 >= ends[before]  # assignment 4 + n is made after upload n
    counts = np.bincount(assigned[order])
    assert counts.min() > 130  # of 167: nobody is preferred


def test_a_visit_is_plain_sgd(tiny_data):
    examples = np.arange(8)[None]
    start = torch.tensor([[0.1, -0.2, 0.3, 0.0, 0.2, 0.5]])
    weights = start.reshape(3, 2).clone()
    for step in range(2):
        weights.requires_grad_(True)
        rows = slice(4 * step, 4 * step + 4)
        loss = torch.nn.functional.cross_entropy(
            tiny_data.inputs[rows] @ weights, torch.from_numpy(tiny_data.labels[rows])
        )
        (gradient,) = torch.autograd.grad(loss, weights)
        weights = (weights - 0.1 * gradient).detach()
    assert train(start, examples, tiny_data, 0.1, 2)[0] == pytest.approx(weights.flatten().numpy(), abs=1e-6)


def test_accuracy_is_the_share_of_right_answers(tiny_data):
    good = torch.tensor([[-1.0, 1.0, -1.0, 1.0, 0.0, 0.0]])
    share = (tiny_data.test_inputs[:, :2].sum(1) > 0).long().eq(tiny_data.test_labels).float().mean().item()
    assert accuracies(torch.cat([good, -good]), tiny_data) == pytest.approx([share, 1 - share])


@pytest.mark.usefixtures("tiny_data")
def test_a_seed_gives_the_same_uploads_alone_and_beside_others():
    both = uploads(0.05)
    assert both == [uploads(0.05, (1,))[0], uploads(0.05, (2,))[0]]
    assert all(found % 5 == 0 for found in both)


@pytest.mark.usefixtures("tiny_data")
def test_a_target_that_is_missed_or_a_model_that_diverges_is_none():
    assert uploads(0.05, world=WORLD.model_copy(update={"target": 0.9999})) == [None, None]
    assert uploads(1e37) == [None, None]


@pytest.mark.usefixtures("tiny_data")
def test_the_norm_grows_with_the_step_size():
    assert 5 < mean_norm(WORLD, [1], 0.01) / mean_norm(WORLD, [1], 0.001) <= 10.01


@pytest.mark.usefixtures("tiny_data")
def test_examples_are_the_clients_own(tiny_data):
    found = visits(WORLD, 3, 1)
    owners = {}
    for client, examples in zip(found.clients, found.examples, strict=True):
        for example in examples:
            assert owners.setdefault(example, client) == client
    assert len(set(owners.values())) == 10


@pytest.mark.usefixtures("tiny_data")
def test_points_are_kept_and_only_missing_ones_are_run(tmp_path, monkeypatch, capsys):
    table = SECTION | {
        "tuning_seeds": [0, 1],
        "seeds": [5, 6],
        "sizes": [2],
        "at_work": [2],
        "small_lr_at_work": 2,
        "small_lr": 0.02,
    }
    section = DisplacementSection.model_validate(table | {"world": WORLD.model_dump() | {"budget": 20}})
    number = sum(len(displacements) for _, displacements in settings(section))
    assert read_points(section, tmp_path) is None
    measure(section, tmp_path)
    assert f"{number} points with 4 seeds each" in capsys.readouterr().out
    before = read_points(section, tmp_path)
    assert len(before) == number
    next(tmp_path.glob("*.json")).unlink()
    (tmp_path / "fedbuff-K2-M2-lr0.1-c0.16667.json").write_text("{", encoding="utf-8")
    assert read_points(section, tmp_path) is None
    runs = []
    real = points.uploads_to_target
    monkeypatch.setattr(points, "uploads_to_target", lambda *values: runs.append(values) or real(*values))
    measure(section, tmp_path)
    assert len(runs) <= 2
    assert [one.uploads for one in read_points(section, tmp_path)] == [one.uploads for one in before]
    other = section.model_copy(update={"world": WORLD})
    assert read_points(other, tmp_path) is None
