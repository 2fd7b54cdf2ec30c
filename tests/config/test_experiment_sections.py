from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.config.experiment_file import Experiment, load
from tests.error_line import error_line

Save = Callable[..., Path]
Load = Callable[..., Experiment]
Changed = Callable[..., dict[str, Any]]

# The line names key and value.
WRONG_VALUES: dict[str, list[Any]] = {
    "local.steps": [0, 2.5, "many", "3", True],
    "local.epochs": [0, -1.0, nan, inf, "2", True],
    "local.batch_size": [-4],
    "local.lr": [0.0, nan, inf, "0.1", True, [0.1, 0.2, 0.3]],
    "local.momentum": [1.0, nan],
    "local.weight_decay": [-0.5],
    "local.mu": [-0.5],
    "local.clip_norm": [0],
    "local.error_feedback": [1],
    "local.optimizer": ["adam", 1],
    "population.clients": [0],
    "population.holdout": [1.0, nan],
    "population.partition": ["iid"],
    "population.partition.alpha": [0],
    "population.step_seconds.sigma": [-1],
    "population.up_bytes_per_second.shape": [0],
    "population.lossy": [3],
    "population.lossy.fraction": [1.5],
    "population.lossy.probability": [nan],
    "population.when_away": ["sleep"],
    "server.lease_seconds": [0],
    "server.max_staleness": [-1],
    "server.update_clip_norm": [0.0, nan],
    "server.max_update_norm": [0.0, inf],
    "server.max_step_norm": [-1.0, "1"],
    "server.aggregate": ["median"],
    "stop.versions": [0],
    "stop.updates": [-2],
    "stop.virtual_seconds": [0.0],
    "evaluate.every_seconds": [0],
    "evaluate.every_versions": [0, 2.5],
    "evaluate.target": [nan],
    "evaluate.on_clients": [0],
    "evaluate.better": ["larger"],
    "evaluate.metrics": ["accuracy"],
    "stop.patience": [0],
    "stop.target": [nan],
    "seeds": [[], [4, 4], 1],
    "device": ["gpu", "cuda:"],
    "precision": ["fp16"],
    "name": ["../up", "", "a/b", 3],
    "data": ["digits"],
    "data.augmentation": ["flip"],
    "model": ["mlp"],
    "model.name": [3],
    "model.batch_norm": ["global"],
    "algorithms": ["fedavg"],
    "algorithms.fedavg": [10],
    "algorithms.fedavg.local": [0.1],
}

# (key, value, what the line says after the file's name)
WRONG_TABLES: list[tuple[str, Any, str]] = [
    ("local.compression", {"name": "topk", "share": 0.1}, "local.compression.name = 'topk': did you mean 'top_k'?"),
    ("local.compression", "top_k", "local.compression = 'top_k': must be a table such as { name = "),
    ("local.compression", {"name": "top_k", "share": 1.5}, "local.compression: share must be in (0, 1], got 1.5"),
    ("local.compression", {"name": "none", "share": 1.0}, "unknown key local.compression.share: none has no param"),
    ("local.lr_decay", {"name": "steps"}, "local.lr_decay.name = 'steps': did you mean 'step'?"),
    ("local.lr_decay", 0.99, "local.lr_decay = 0.99: must be a table such as { name = "),
    ("local.lr_decay", {"name": "step", "every": 0}, "local.lr_decay: every must be a whole number of at least 1"),
    ("local.lr_decay", {"name": "step"}, "local.lr_decay.every is missing"),
    ("local", {"steps": 1, "batch_size": 1, "lr": 1.0, "momentum": 0.5, "optimizer": "adamw"}, "local: momentum is "),
    ("local.steps", "my_steps", "local.steps = 'my_steps': must be a whole number of at least 1, or an import path"),
    ("local.steps", "no.py:steps", "local.steps = 'no.py:steps': no such file: "),
    ("local.steps", "math:no", "local.steps = 'math:no': there is no 'no'"),
    ("local.steps", "math:pi", "local.steps = 'math:pi': must be a function or a class, but is a float"),
    ("local.epochs", 2, "local: set exactly one of steps and epochs"),
    ("local", {"batch_size": 1, "lr": 1.0}, "local: set exactly one of steps and epochs"),
    ("local.error_feedback", True, "local: error_feedback needs compression: set compression, or error_feedback = f"),
    ("local", {"steps": 1, "batch_size": 1, "lr": 1.0, "momentum": 0.5, "mu": 0.1}, "local: momentum and mu "),
    ("stop", {}, "stop: set virtual_seconds, versions or updates"),
    ("stop.metric", "accuracy", "stop: metric is for target and patience: set one of them, or leave it out"),
    ("stop", {"target": 0.9}, "stop: set virtual_seconds, versions or updates, too: the metric may never get there"),
    ("flower", {"app": "my_app"}, "flower.app = 'my_app': must be an import path"),
    ("flower", {"app": "a.py:app", "run_config": {"a": [1]}}, "flower.run_config.a = [1]: a setting of an app is true"),
    ("evaluate.every_versions", 5, "evaluate: set exactly one of every_seconds and every_versions"),
    ("evaluate", {"target": 0.5}, "evaluate: set exactly one of every_seconds and every_versions"),
    ("evaluate.metrics", ["accurcy"], "evaluate.metrics = ['accurcy']: did you mean 'accuracy'? Allowed: accuracy, "),
    ("evaluate.metrics", ["accuracy", "x.py:accuracy"], "evaluate.metrics = ['accuracy', 'x.py:accuracy']: names must"),
    ("evaluate.metrics", ["x.py:loss"], "evaluate.metrics = ['x.py:loss']: names must differ from each other and from"),
    ("evaluate.target", 1.5, "evaluate.target = 1.5: an accuracy is between 0 and 1, for instance 0.8"),
    ("population.lossy", {"fraction": 1.0, "probability": 1.0}, "population.lossy: every client loses all its work"),
    ("population.partition", {"name": "file", "path": 3}, "population.partition.path = 3: "),
    ("population.partition", {"name": "file", "path": "~nobody-of-that-name/x"}, "population.partition.path = '~nobo"),
    ("population.partition", {"name": "mixing", "mu": 1.5}, "population.partition.mu = 1.5: "),
    ("population.partition", {"name": "quantity_skew", "sigma": -1.0}, "population.partition.sigma = -1.0: "),
    ("population.partition.name", "shards", "population.partition.name = 'shards': Allowed: by_hour, by_user"),
    ("population.step_seconds.distribution", "gauss", "population.step_seconds.distribution = 'gauss': "),
    ("population.step_seconds", {"distribution": "uniform", "low": 2.0, "high": 1.0}, "population.step_seconds: high "),
    ("population.availability", {"name": "bernoulli", "probability": 0, "round_seconds": 1.0},
     "population.availability.probability = 0: "),
    ("population.availability", {"name": "quiet_hours", "hours": 25}, "population.availability.hours = 25: "),
    ("seeds", [2**63], "seeds.0 = 9223372036854775808: must be less than"),
    ("seeds", [-1], "seeds.0 = -1: "),
    ("data.name", "fashion-mnis", "data.name = 'fashion-mnis': did you mean 'fashion-mnist'?"),
    ("data.name", "data.py:1", "data.name = 'data.py:1': after the colon"),
    ("data.name", "no/py:load", "data.name = 'no/py:load': before the colon"),
    ("data.fallback", "mnits", "data.fallback = 'mnits': did you mean 'mnist'?"),
    ("data.arguments", {"size": 3}, "data: arguments are for a function of your own: name it in data.name"),
    ("data.collate", "pad", "data.collate = 'pad': must be an import path such as"),
    ("data.collate", "pad.py:pad", "data: collate is for data of your own: set data.name to them"),
    ("model.name", "cnm", "model.name = 'cnm': did you mean 'cnn'? Allowed: cnn, "),
    ("model.name", "net.py:", "model.name = 'net.py:': after the colon"),
    ("model", {"name": "mlp", "hidden": [0]}, "model.hidden.0 = 0: "),
    ("model.loss", "crossentropy", "model.loss = 'crossentropy': did you mean 'cross_entropy'?"),
    ("algorithms", {}, "algorithms: "),
    ("algorithms", {"../outside": {"algorithm": "fedavg"}}, "algorithms"),
    ("algorithms", {"a/b": {"algorithm": "fedavg"}}, "algorithms"),
    ("algorithms.fedbuf", {}, "algorithms.fedbuf: unknown algorithm 'fedbuf': did you mean 'fedbuff'?"),
    ("algorithms.mine", {"algorithm": "fedasink"}, "algorithms.mine: unknown algorithm 'fedasink': did you mean "),
    ("algorithms.fedbuff", {"bufer_size": 3}, "algorithms.fedbuff: unknown key 'bufer_size': did you mean 'buffer_"),
    ("algorithms.fedavg.cohort", 0, "algorithms.fedavg: cohort = 0: must be greater than or equal to 1"),
    ("algorithms.fedavg.local", {"steps": 0}, "algorithms.fedavg.local.steps = 0: "),
    ("algorithms.fedavg.local", {"compression": {"name": "topk"}}, "algorithms.fedavg.local.compression.name = 'topk'"),
    ("algorithms.fedavg.local", {"optimizer": "adamw", "mu": 0.1}, "algorithms.fedavg.local: mu is for SGD: set opt"),
    ("algorithms.fedavg.local", {"error_feedback": True}, "algorithms.fedavg.local: error_feedback needs compression"),
    ("algorithms.fedavg.local", {"step": 1}, "unknown key algorithms.fedavg.local.step: did you mean 'steps'?"),
    ("algorithms.async_comm_sgd.pattern.name", "rules.py:", "algorithms.async_comm_sgd: pattern.name: 'rules.py:': af"),
]  # fmt: skip

UNKNOWN_KEYS: list[tuple[str, str]] = [
    ("evalute", "did you mean 'evaluate'?"),
    ("local.stepz", "did you mean 'steps'?"),
    ("model.hidden", "Allowed: batch_norm, loss, name"),  # softmax has none
    ("population.partition.alhpa", "did you mean 'alpha'?"),
    ("population.step_seconds.mean", "Allowed: distribution, median, sigma"),
    ("stop.version", "did you mean 'versions'?"),
]

MISSING_KEYS = [
    "data",
    "data.name",
    "model",
    "model.name",
    "local",
    "local.lr",
    "population",
    "population.clients",
    "population.partition.name",
    "population.partition.alpha",
    "population.step_seconds.distribution",
    "population.step_seconds.median",
    "population.lossy.fraction",
    "algorithms",
    "stop",
    "evaluate",
]


class TestErrors:
    @pytest.fixture
    def line(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> Callable[..., str]:
        """Return a function that loads a changed experiment, and returns the error without the file's name."""

        def load_changed(key: str, *value: Any) -> str:
            path = save(changed(tiny, key, *value))
            line = error_line(load, path)
            assert line.startswith(f"{path}: ")
            return line.removeprefix(f"{path}: ")

        return load_changed

    @pytest.mark.parametrize(
        ("key", "value"), [(key, value) for key, values in WRONG_VALUES.items() for value in values]
    )
    def test_a_wrong_value(self, key: str, value: Any, line: Callable[..., str]) -> None:
        assert line(key, value).startswith(f"{key} = {value!r}: ")

    @pytest.mark.parametrize(("key", "value", "start"), WRONG_TABLES)
    def test_a_wrong_table(self, key: str, value: Any, start: str, line: Callable[..., str]) -> None:
        assert line(key, value).startswith(start)

    @pytest.mark.parametrize(("key", "hint"), UNKNOWN_KEYS)
    def test_an_unknown_key(self, key: str, hint: str, line: Callable[..., str]) -> None:
        found = line(key, 1)
        assert found.startswith(f"unknown key {key}: ")
        assert hint in found

    @pytest.mark.parametrize("key", MISSING_KEYS)
    def test_a_missing_key(self, key: str, line: Callable[..., str]) -> None:
        assert line(key) == f"{key} is missing"

    def test_lossy_clients_need_a_lease(self, line: Callable[..., str]) -> None:
        assert line("server", {}).startswith("population.lossy needs server.lease_seconds")

    @pytest.mark.parametrize(
        ("key", "value"),
        [("when_away", "lose"), ("availability", {"name": "intervals", "path": "x.csv"})],
    )
    def test_clients_that_may_not_come_back_need_a_lease(
        self, key: str, value: Any, changed: Changed, save: Save, tiny: dict[str, Any]
    ) -> None:
        without = changed(changed(tiny, "population.lossy"), f"population.{key}", value)
        load(save(without))
        line = error_line(load, save(changed(without, "server")))
        assert f"population.{key}" in line
        assert "needs server.lease_seconds" in line

    def test_all_problems_are_listed(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        table = changed(changed(changed(tiny, "local.lr", -1.0), "local.steps", 0), "stop.versions", 0)
        table = changed(changed(table, "algorithms.fedbuff.bufer_size", 3), "algorithms.fedprox", {})
        file = save(table)
        with pytest.raises(OffbeatError) as caught:
            load(file)
        assert [line.removeprefix(f"{file}: ")[:30] for line in caught.value.lines] == [
            "local.steps = 0: must be a who",
            "local.lr = -1.0: must be great",
            "stop.versions = 0: must be gre",
            "algorithms.fedbuff: unknown ke",
            "algorithms.fedprox: unknown al",
        ]

    def test_all_problems_of_algorithms_are_listed(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        table = changed(changed(tiny, "algorithms.fedbuff.bufer_size", 3), "algorithms.fedavg.local", {"lr": -1.0})
        file = save(table)
        with pytest.raises(OffbeatError) as caught:
            load(file)
        starts = [line.removeprefix(f"{file}: ").split(":")[0] for line in caught.value.lines]
        assert sorted(starts) == ["algorithms.fedavg.local.lr = -1.0", "algorithms.fedbuff"]

    def test_what_is_almost_wrong_is_accepted(self, experiment: Load) -> None:
        experiment("population.lossy={ fraction = 1.0, probability = 0.9 }")
        experiment("data={ name = 'data.py:load', arguments = { size = 3 } }")


class TestFile:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"seeds = [1", "FILE is not valid TOML: "),
            (b"a = 1\na = 2", "FILE is not valid TOML: "),
            (b"[data\nname = 1", "FILE is not valid TOML: "),
            (b"local.lr = 0,1", "FILE is not valid TOML: "),
            (b"seeds = " + 5000 * b"1", "FILE is not valid TOML: "),
            (b"seeds = " + 5000 * b"[", "FILE is not valid TOML: "),
            ('name = "café"'.encode("latin-1"), "cannot read FILE: it is not UTF-8"),
            (b"", "FILE: the sections data, model, local, population, stop, evaluate, algorithms are missing"),
        ],
    )
    def test_its_contents_are_wrong(self, content: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        path.write_bytes(content)
        assert error_line(load, path).startswith(message.replace("FILE", str(path)))

    def test_it_is_missing_or_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        path = tmp_path / "nowhere.toml"
        assert error_line(load, path) == f"no such file: {path}"
        assert error_line(load, tmp_path).startswith(f"cannot read {tmp_path}: Is a directory")
        assert error_line(load, tmp_path / "file" / "x.toml").startswith("cannot read")
