"""The worlds, algorithms and search spaces of the benchmark."""

from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import ALGORITHMS
from offbeat.sweeps.search_space import Choices, Numbers
from offbeat_studies.benchmark.catalogue import read_entries
from offbeat_studies.benchmark.protocol import Plan
from offbeat_studies.benchmark.raw_data import published
from offbeat_studies.benchmark.world import labels, read_world, world_names

TINY = str(Path(__file__).with_name("tiny_world.toml"))
MINE = "from offbeat.algorithms import FedBuff\n\n\nclass Mine(FedBuff):\n    max_norm: float = 1.0\n"


def entry(label, world="calm"):
    return next(one for one in read_entries(read_world(world), [], []) if one.label == label)


def test_every_algorithm_of_offbeat_but_the_centralised_one_is_there():
    found = {one.table.get("algorithm", one.label) for one in read_entries(read_world("calm"), [], [])}
    assert found == set(ALGORITHMS) - {"sequential_sgd"}


@pytest.mark.parametrize("name", world_names())
def test_a_world_can_run_all_its_algorithms(name):
    world = read_world(name)
    entries = read_entries(world, [], [])
    assert [one.label for one in entries] == [label for label in labels() if label not in world.without]
    for one in entries:
        world.experiment({one.label: one.table}, [0], 0.5, one.server)
    assert world.seconds == world.table["stop"]["virtual_seconds"]
    assert len(world.question) > 20


def test_an_experiment_is_a_share_of_the_worlds_length():
    made = read_world(TINY).experiment({"fedbuff": {}}, [3, 4], 0.5, {"max_staleness": 0})
    assert (made.stop.virtual_seconds, made.seeds, made.server.max_staleness) == (20.0, (3, 4), 0)
    assert made.name == "tiny_world"


def test_a_search_space_has_the_keys_that_the_algorithm_has():
    assert set(entry("fedavg").space) == {"local.lr", "server_lr", "cohort", "over_selection"}
    assert set(entry("fedprox").space) == {"local.lr", "local.mu", "cohort", "over_selection"}
    assert entry("fedbuff").space["buffer_size"] == Choices((2, 4, 8, 16))
    assert entry("fedavg").space["local.lr"] == Numbers(0.01, 0.5, log=True)


def test_values_of_ones_own_may_have_commas(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    over = "staleness={ name = 'hinge', a = 1.0, b = 2.0 },{ name = 'hinge', a = 1.0, b = 9.0 }"
    (mine,) = read_entries(read_world("silo"), ["my.py:Mine"], [over])
    assert [value["b"] for value in mine.space["staleness"].values] == [2.0, 9.0]


def test_all_is_a_value_like_others_where_it_is_given(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(MINE.replace("max_norm: float = 1.0", 'who: str = "all"'), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (mine,) = read_entries(read_world("calm"), ["my.py:Mine"], ["who=all,none"])
    assert mine.space["who"] == Choices(("all", "none"))


def test_a_world_replaces_a_search_space():
    assert next(iter(read_entries(read_world(TINY), ["fedavg"], []))).space["cohort"] == Choices((2, 3))
    assert entry("fedluck", "phones").texts["period"] == "1800.0,3600.0,7200.0,14400.0,28800.0"
    assert "period" not in entry("fedavg", "phones").texts


def test_a_world_takes_over_the_settings_that_another_one_has_tuned(tmp_path, monkeypatch):
    world = read_world("cifar10-longtail")
    found = read_entries(world, [], [])
    assert [one.label for one in found] == ["fedavg", "fedasync", "fedbuff", "fedcompass", "fedfa", "fedluck"]
    assert (world.seeds, read_world("longtail").seeds) == (5, 10)
    tuned = published("longtail").facts
    for one in found:
        plan = Plan(world, [one], range(1, 11), tmp_path)
        assert plan.points(one) == [tuned[one.label]["settings"]]
        assert len(plan.runs) == 10
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (mine,) = read_entries(world, ["my.py:Mine"], [])
    assert set(mine.space) == {"local.lr", "server_lr", "concurrency", "buffer_size"}  # nobody has tuned it


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('settings_of = "lontail"', "benchmark.settings_of = 'lontail': did you mean 'longtail'? "),
        ("settings_of = 3", "benchmark.settings_of = 3: must be a valid string"),
        ("seeds = 1", "benchmark.seeds = 1: must be greater than or equal to 2"),
        ('only = ["fedavgg"]', "benchmark.only = ['fedavgg']: did you mean 'fedavg'? "),
        ("space = 3", "benchmark.space = 3: must be a table"),
        ("spaces = {}", "unknown key benchmark.spaces: did you mean 'space'? "),
    ],
)
def test_a_mistake_in_a_worlds_own_table_is_one_line(line, message, tmp_path):
    _, world = Path(TINY).read_text(encoding="utf-8").split("\n\n", 1)
    (tmp_path / "world.toml").write_text(f"[benchmark]\n{line}\n\n{world}", encoding="utf-8")
    with pytest.raises(OffbeatError) as caught:
        read_world(str(tmp_path / "world.toml"))
    assert str(caught.value).startswith(f"{tmp_path / 'world.toml'}: {message}")


@pytest.mark.parametrize("line", ["seeds = [1]", "algorithms = {}", "stop.updates = 5"])
def test_keys_that_the_benchmark_sets_are_refused(line, tmp_path):
    text = Path(TINY).read_text(encoding="utf-8").replace("[stop]\nvirtual_seconds = 40.0\n", "")
    world = f"{line}\nstop.virtual_seconds = 40.0\n{text}"
    (tmp_path / "world.toml").write_text(world, encoding="utf-8")
    with pytest.raises(OffbeatError) as caught:
        read_world(str(tmp_path / "world.toml"))
    key = line.partition(" ")[0]
    assert str(caught.value) == f"{tmp_path / 'world.toml'}: {key}: the benchmark sets it: leave it out of a world"


def test_all_stands_for_the_number_of_clients():
    assert entry("fedbuff").space["concurrency"] == Choices((10, 20, 50))
    assert entry("fedbuff", "silo").space["concurrency"] == Choices((4, 8))


def test_all_is_not_tried_twice(tmp_path):
    world = Path(TINY).read_text(encoding="utf-8").replace('concurrency = "2,3"', 'concurrency = "2,6,all"')
    (tmp_path / "world.toml").write_text(world, encoding="utf-8")
    (one,) = read_entries(read_world(str(tmp_path / "world.toml")), ["fedbuff"], [])
    assert one.space["concurrency"] == Choices((2, 6))


def test_rennala_counts_fresh_updates_only():
    assert entry("rennala").server == {"max_staleness": 0}


def test_a_class_of_ones_own_has_the_common_space_and_more(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (one,) = read_entries(read_world("calm"), ["my.py:Mine"], ["max_norm=0.1:10:log", "buffer_size=3,5"])
    assert (one.label, one.table) == ("Mine", {"algorithm": f"{tmp_path / 'my.py'}:Mine"})
    assert set(one.space) == {"local.lr", "server_lr", "concurrency", "buffer_size", "max_norm"}
    assert one.space["buffer_size"] == Choices((3, 5))


@pytest.mark.parametrize(
    ("names", "overs", "line"),
    [
        (["fedbuf"], [], "fedbuf: did you mean 'fedbuff'? "),
        (["my.py:Other"], [], "'{}/my.py:Other': there is no 'Other'"),
        (["my.py:Mine", "./my.py:Mine"], [], "./my.py:Mine: Mine is already an algorithm of the benchmark"),
        (["my.py:Mine"], ["max_nor=1:2"], "--over algorithms.Mine.max_nor=1:2: algorithms.Mine: unknown key 'max_nor'"),
        (["fedavg"], ["server_lr=1:2"], "--over server_lr=1:2: is for an algorithm of your own"),
        (["my.py:Mine"], ["max_norm"], "--over max_norm: write it as KEY=LOW:HIGH"),
    ],
)
def test_a_mistake_is_one_line(names, overs, line, tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OffbeatError) as caught:
        read_entries(read_world("calm"), names, overs)
    assert str(caught.value).startswith(line.format(tmp_path))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("virtual_seconds = 40.0", "virtual_seconds = nan"),
            "world.toml: needs the numbers stop.virtual_seconds and ",
        ),
        (("virtual_seconds = 40.0", "versions = 9"), "world.toml: needs the numbers stop.virtual_seconds and "),
        (("target = 0.7", 'target = "high"'), "world.toml: needs the numbers"),
        (("clients = 6", "client = 6"), "world.toml: unknown key population.client: did you mean "),
        (("target = 0.7", 'target = 0.7\nmetrics = ["mse"]'), "world.toml: evaluate.metrics: needs accuracy"),
    ],
)
def test_a_mistake_in_a_world_is_one_line(change, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("world.toml").write_text(Path(TINY).read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(OffbeatError) as caught:
        read_world("world.toml")
    assert str(caught.value).startswith(line)


def test_a_file_does_not_pass_for_a_world_of_the_benchmark():
    with pytest.raises(
        OffbeatError, match=r"^--world my/calm\.toml: calm is a world of the benchmark: rename the file$"
    ):
        read_world("my/calm.toml")


def test_an_unknown_world_is_one_line():
    with pytest.raises(OffbeatError, match=r"^--world lontail: did you mean 'longtail'\? "):
        read_world("lontail")
