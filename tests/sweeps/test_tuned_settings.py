from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import experiment_of
from offbeat.sweeps.search_space import Choices, Numbers, as_text
from offbeat.sweeps.tuned_settings import edge_to_widen, tuned_spaces, with_explicit_staleness

PATH = Path("here.toml")
OWN = """
from offbeat.algorithms import FedBuff
from offbeat.algorithms.components import Count, Positive, Share

class Own(FedBuff):
    name = "own"
    strength: Positive = 2.0
    part: Share = 0.5
    parties: Count = 1
    plain: float = 3.0
"""


@pytest.fixture
def spaces(tiny, overs):
    """Return a function that returns the spaces and points of algorithms."""

    def make(algorithms, *texts, **changes):
        table = {**tiny, "algorithms": algorithms, **changes}
        experiment = experiment_of(table, PATH)
        table = with_explicit_staleness(table, experiment)
        found = tuned_spaces(table, experiment, overs(*texts), list(algorithms), PATH)
        texts = {label: {key: as_text(values) for key, values in space.items()} for label, (space, _) in found.items()}
        return texts, {label: point for label, (_, point) in found.items()}

    return make


def test_step_sizes_and_the_algorithms_own_numbers_are_searched_around_the_files(tiny, spaces):
    local = {**tiny["local"], "lr": 0.03}
    algorithms = {
        "fedavg": {"server_lr": 2.0, "cohort": 7, "local": {"lr": 0.5, "mu": 0.01}},
        "fedasync": {},
        "fedbuff": {"buffer_size": 3, "staleness": {"name": "polynomial", "a": 0.25}},
        "fedfa": {"window": 8},
    }
    texts, points = spaces(algorithms, local=local)
    lr = {"local.lr": "0.003:0.3:log"}
    assert texts == {
        "fedavg": {"local.lr": "0.05:5:log", "local.mu": "0.001:0.1:log", "server_lr": "0.2:20:log"},
        "fedasync": lr | {"mixing_alpha": "0.06:1:log", "staleness.a": "0.0,0.5,1.0"},
        "fedbuff": lr | {"buffer_size": "1:12:log", "server_lr": "0.1:10:log", "staleness.a": "0.0,0.25,0.5,1.0"},
        "fedfa": lr | {"window": "2:32:log", "server_lr": "0.1:10:log"},
    }
    assert points["fedbuff"] == {"local.lr": 0.03, "buffer_size": 3, "server_lr": 1.0, "staleness.a": 0.25}


def test_an_own_algorithms_annotated_settings_are_searched(tmp_path, spaces):
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    texts, _ = spaces({"own": {"algorithm": f"{tmp_path}/own.py:Own"}})
    more = {"strength": "0.2:20:log", "part": "0.05:1:log", "parties": "1:4:log"}
    assert {key: text for key, text in texts["own"].items() if key in {*more, "plain"}} == more


def test_an_over_replaces_or_adds_and_must_have_the_files_value(spaces):
    texts, points = spaces({"fedavg": {}}, "algorithms.fedavg.server_lr=1,4", "local.steps=1:8")
    assert texts["fedavg"]["server_lr"] == "1,4"
    assert texts["fedavg"]["local.steps"] == "1:8"
    assert points["fedavg"]["server_lr"] == 1
    line = "--over server_lr: the values must include that of the file for fedavg, which the first trial has: 1.0"
    with pytest.raises(OffbeatError, match=f"^{line}$"):
        spaces({"fedavg": {}}, "algorithms.fedavg.server_lr=2,4")


@pytest.mark.parametrize(
    ("key", "values", "best", "end"),
    [
        ("server_lr", Numbers(0.1, 10.0, log=True), 0.11, "lower"),
        ("server_lr", Numbers(0.1, 10.0, log=True), 0.2, ""),
        ("server_lr", Numbers(0.1, 10.0, log=True), 9.0, "upper"),
        ("server_lr", Numbers(0.0001, 10.0, log=False), 9.6, "upper"),
        ("buffer_size", Numbers(2, 20, log=True, whole=True), 20, "upper"),
        ("buffer_size", Numbers(2, 20, log=True, whole=True), 19, ""),
        ("buffer_size", Numbers(2, 20, log=True, whole=True), 2, "lower"),
        ("buffer_size", Numbers(1, 20, log=True, whole=True), 1, ""),  # there is nothing below
        ("staleness.a", Choices((0.0, 0.5, 1.0)), 1.0, "upper"),
        ("staleness.a", Choices((0.0, 0.5, 1.0)), 0.0, ""),
    ],
)
def test_an_edge_is_where_better_values_may_lie_beyond(tiny, key, values, best, end):
    assert edge_to_widen(with_staleness(tiny), "fedbuff", key, values, best, PATH) == end


def with_staleness(tiny):
    return with_explicit_staleness(tiny, experiment_of(tiny, PATH))
