from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbeat.config.experiment_file import load
from offbeat.errors import OffbeatError

Save = Callable[..., Path]

Changed = Callable[..., dict[str, Any]]

# (key, value, what the line must hold besides the key)
WRONG_VALUES: list[tuple[str, Any, list[str]]] = [
    # out of range
    ("local.steps", 0, ["0", "greater than or equal to 1"]),
    ("local.batch_size", -4, ["-4", "greater than or equal to 1"]),
    ("local.lr", 0.0, ["0.0", "greater than 0"]),
    ("local.lr", float("nan"), ["nan", "finite"]),
    ("local.lr", float("inf"), ["inf", "finite"]),
    ("local.momentum", 1.0, ["1.0", "less than 1"]),
    ("local.momentum", float("nan"), ["nan"]),
    ("local.weight_decay", -0.5, ["-0.5", "greater than or equal to 0"]),
    ("local.mu", -0.5, ["-0.5", "greater than or equal to 0"]),
    ("local.clip_norm", 0, ["0", "greater than 0"]),
    ("local.compression", {"name": "topk", "share": 0.1}, ["local.compression.name = 'topk': did you mean 'top_k'?"]),
    ("local.compression", {"name": "top_k"}, ["local.compression.share is missing"]),
    ("local.compression", {"share": 0.1}, ['must be a table such as { name = "top_k", share = … }; names: top_k, ran']),
    ("local.compression", "top_k", ["local.compression = 'top_k': must be a table such as"]),
    ("local.compression", {"name": "top_k", "share": 1.5}, ["local.compression: share must be in (0, 1], got 1.5"]),
    ("local.compression", {"name": "top_k", "share": "x"}, ["local.compression.share = 'x': must be a valid number"]),
    ("local.compression", {"name": "qsgd", "bits": 2.5}, ["local.compression.bits = 2.5: must be a valid integer"]),
    ("local.compression", {"name": "qsgd", "bits": 1}, ["local.compression: bits must be a whole number in 2 … 16"]),
    ("local.compression", {"name": "none", "share": 1.0}, ["unknown key local.compression.share: none has no param"]),
    ("local.error_feedback", 1, ["1", "boolean"]),
    ("local.error_feedback", True, ["set compression, or error_feedback = false"]),
    ("population.clients", 0, ["0", "greater than or equal to 1"]),
    ("population.partition.alpha", 0, ["0", "greater than 0"]),
    ("population.step_seconds.sigma", -1, ["-1", "greater than or equal to 0"]),
    ("population.up_bytes_per_second.shape", 0, ["0", "greater than 0"]),
    ("population.lossy.fraction", 1.5, ["1.5", "less than or equal to 1"]),
    ("population.lossy.probability", float("nan"), ["nan"]),
    ("server.lease_seconds", 0, ["0", "greater than 0"]),
    ("server.max_staleness", -1, ["-1", "greater than or equal to 0"]),
    ("stop.versions", 0, ["0", "greater than or equal to 1"]),
    ("stop.updates", -2, ["-2", "greater than or equal to 1"]),
    ("stop.virtual_seconds", 0.0, ["0.0", "greater than 0"]),
    ("evaluate.every_seconds", 0, ["0", "greater than 0"]),
    ("evaluate.every_versions", 0, ["0", "greater than or equal to 1"]),
    ("evaluate.every_versions", 2.5, ["2.5", "integer"]),
    ("evaluate.every_versions", 5, ["evaluate: set exactly one of every_seconds and every_versions"]),
    ("evaluate", {"target": 0.5}, ["evaluate: set exactly one of every_seconds and every_versions"]),
    ("evaluate.target", float("nan"), ["nan", "finite"]),
    ("evaluate.metrics", ["accurcy"], ["did you mean 'accuracy'?", "mae", "mse", "import path"]),
    ("evaluate.metrics", ["accuracy", "x.py:accuracy"], ["must differ"]),
    ("evaluate.metrics", ["x.py:loss"], ["must differ", "bytes_down"]),
    ("evaluate.metrics", "accuracy", ["'accuracy'", "list"]),
    ("evaluate.better", "larger", ["'larger'", "'higher' or 'lower'"]),
    ("population.availability", {"name": "alternating", "period_seconds": 1.0, "groups": 1}, ["groups = 1", "2"]),
    ("population.availability", {"name": "bernoulli", "probability": 0, "round_seconds": 1.0}, ["greater than 0"]),
    ("population.availability", {"name": "quiet_hours", "hours": 25}, ["25", "less than or equal to 24"]),
    ("population.availability.name", "sometimes", ["'sometimes'", "'quiet_hours'", "'intervals'"]),
    ("population.when_away", "sleep", ["'sleep'", "'pause' or 'lose'"]),
    ("population.partition", {"name": "mixing", "mu": 1.5}, ["1.5", "less than or equal to 1"]),
    ("population.partition", {"name": "quantity_skew", "sigma": -1.0}, ["-1", "greater than or equal to 0"]),
    ("population.partition", {"name": "file", "path": 3}, ["path = 3", "string"]),
    ("population.partition", {"name": "file", "path": "~nobody-of-that-name/x.csv"}, ["path", "does not exist"]),
    ("population.step_seconds", {"distribution": "uniform", "low": 2.0, "high": 1.0}, ["high must be at least low"]),
    ("seeds", [], ["[]", "at least 1"]),
    ("seeds", [4, 4], ["[4, 4]", "different"]),
    ("seeds", [2**63], ["9223372036854775808", "less than"]),
    ("seeds", [-1], ["-1", "greater than or equal to 0"]),
    ("name", "../up", ["'../up'"]),
    ("name", "", ["''"]),
    ("name", "a/b", ["'a/b'"]),
    # wrong type
    ("local.steps", 2.5, ["2.5", "integer"]),
    ("local.steps", "many", ["'many'", "integer"]),
    ("local.steps", "3", ["'3'", "integer"]),
    ("local.steps", True, ["True", "integer"]),
    ("local.lr", "0.1", ["'0.1'", "number"]),
    ("local.lr", True, ["True", "number"]),
    ("local.lr", [0.1, 0.2, 0.3], ["[0.1, 0.2, 0.3]", "number"]),
    ("population.lossy", 3, ["3", "table"]),
    ("seeds", 1, ["1", "list"]),
    ("seeds", ["a"], ["'a'", "integer"]),
    ("name", 3, ["3", "string"]),
    ("data", "digits", ["'digits'", "table"]),
    ("model", "mlp", ["'mlp'", "table"]),
    ("population.partition", "iid", ["'iid'", "table"]),
    ("algorithms", "fedavg", ["'fedavg'", "table"]),
    ("algorithms.fedavg", 10, ["10", "table"]),
    ("algorithms.fedavg.local", 0.1, ["0.1", "table"]),
    # unknown names
    ("data.name", "fashion-mnis", ["'fashion-mnis'", "did you mean 'fashion-mnist'?", "digits"]),
    ("data.fallback", "mnits", ["'mnits'", "did you mean 'mnist'?", "digits, fashion-mnist"]),
    ("data.name", "data.py:1", ["data.py:1'", "after the colon"]),
    ("data.name", "no/py:load", ["no/py:load'", "before the colon"]),
    ("data.augmentation", "flip", ["'flip'", "'crop-and-flip'"]),
    ("data.arguments", {"size": 3}, ["function of your own", "data.name"]),
    ("model.name", "cnm", ["'cnm'", "'softmax', 'mlp'", "import path such as my_code.py:name"]),
    ("model.name", 3, ["3", "string"]),
    ("model.name", "net.py:", ["net.py:'", "after the colon"]),
    ("model.loss", "crossentropy", ["did you mean 'cross_entropy'?", "bce", "import path"]),
    ("model.loss", "loss.py:3", ["loss.py:3'", "after the colon"]),
    ("model.batch_norm", "global", ["'global'", "'refuse' or 'local'"]),
    ("population.partition.name", "shards", ["'shards'", "'iid', 'dirichlet', 'one_class'"]),
    ("population.step_seconds.distribution", "gauss", ["'gauss'", "'pareto', 'file', 'phones'"]),
    ("algorithms", {}, ["at least 1"]),
    # of the algorithms
    ("algorithms.fedbuf", {}, ["unknown algorithm 'fedbuf'", "did you mean 'fedbuff'?", "fedasync, fedavg, fedbuff"]),
    ("algorithms.mine", {"algorithm": "fedasink"}, ["'fedasink'", "did you mean 'fedasync'?"]),
    ("algorithms.fedbuff.algorithm", 3, ["3", "string"]),
    ("algorithms.fedbuff.buffer_size", 0, ["buffer_size = 0", "greater than or equal to 1"]),
    ("algorithms.fedbuff.buffer_size", True, ["True", "integer"]),
    ("algorithms.fedbuff.buffer_size", "3", ["'3'", "integer"]),
    ("algorithms.fedbuff.server_lr", -1.0, ["-1.0", "greater than 0"]),
    ("algorithms.fedasync.mixing_alpha", 1.5, ["1.5", "less than or equal to 1"]),
    ("algorithms.fedavg.over_selection", 0.5, ["0.5", "greater than or equal to 1"]),
    ("algorithms.fedavg.weighting", "loss", ["'loss'", "'examples'", "'uniform'"]),
    ("algorithms.fedbuff.staleness", "polynomial", ["'polynomial'", "table", "constant, polynomial, hinge"]),
    ("algorithms.fedbuff.staleness", {"a": 1.0}, ["table"]),
    ("algorithms.fedbuff.staleness.name", "polynomal", ["'polynomal'", "did you mean 'polynomial'?"]),
    ("algorithms.fedbuff.staleness.name", [1], ["[1]", "polynomial"]),
    ("algorithms.fedbuff.staleness", {"name": "polynomial", "a": "x"}, ["staleness.a", "'x'", "number"]),
    ("algorithms.fedbuff.staleness", {"name": "polynomial", "a": -1}, ["a must not be negative", "-1"]),
    ("algorithms.fedavg.server_optimizer", {"name": "adm"}, ["server_optimizer.name", "did you mean 'adam'?"]),
    ("algorithms.fedavg.server_optimizer", {"name": "adam", "beta1": 2}, ["beta1", "[0, 1)", "2"]),
    ("algorithms.fedavg.local", {"steps": 0}, ["local.steps", "0", "greater than or equal to 1"]),
    ("algorithms.fedavg.local", {"compression": {"name": "topk"}}, ["local.compression.name = 'topk'"]),
    ("algorithms.fedavg.local.compression", {"share": 0.1}, ["local.compression = {'share': 0.1}: must be a table"]),
    ("algorithms.fedavg.local", {"error_feedback": True}, ["set compression, or error_feedback = false"]),
    ("algorithms.async_comm_sgd.pattern", {"name": "ful"}, ["pattern.name = 'ful': did you mean 'full'?"]),
    ("algorithms.async_comm_sgd.pattern.name", "rules.py:", ["pattern.name: 'rules.py:': after the colon"]),
    ("algorithms.async_comm_sgd.pattern.name", "no/py:f", ["pattern.name: 'no/py:f': before the colon"]),
    ("algorithms.async_comm_sgd.step_sizes", {"name": "inverse"}, ["did you mean 'inverse_time'?"]),
    ("algorithms.fedluck.steps", [50], ["steps = [50]: must be a list of 2"]),
    # that do not fit together
    ("local", {"steps": 1, "batch_size": 1, "lr": 1.0, "momentum": 0.5, "mu": 0.1}, ["momentum and mu", "set one"]),
    ("algorithms.fedavg.local", {"momentum": 0.5, "mu": 0.1}, ["momentum and mu", "set one"]),
]  # fmt: skip

UNKNOWN_KEYS: list[tuple[str, str]] = [
    ("evalute", "did you mean 'evaluate'?"),
    ("local.stepz", "did you mean 'steps'?"),
    ("data.nmae", "did you mean 'name'?"),
    ("model.hidden", "Allowed: batch_norm, loss, name"),  # softmax has none
    ("evaluate.target_accuracy", "Allowed: better, every_seconds, every_versions, metrics, target"),
    ("data.args", "did you mean 'arguments'?"),
    ("population.client", "did you mean 'clients'?"),
    ("population.partition.alhpa", "did you mean 'alpha'?"),
    ("population.step_seconds.mean", "Allowed: distribution, median, sigma"),
    ("population.lossy.fractions", "did you mean 'fraction'?"),
    ("server.lease_second", "did you mean 'lease_seconds'?"),
    ("stop.version", "did you mean 'versions'?"),
    ("evaluate.every_second", "did you mean 'every_seconds'?"),
    ("algorithms.fedavg.local.learning_rate", "Allowed: batch_size"),
    ("algorithms.fedavg.local.step", "did you mean 'steps'?"),
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
    @pytest.mark.parametrize(("key", "value", "parts"), WRONG_VALUES)
    def test_a_wrong_value(
        self, key: str, value: Any, parts: list[str], changed: Changed, save: Save, tiny: dict[str, Any]
    ) -> None:
        path = save(changed(tiny, key, value))
        line = _error(lambda: load(path))
        assert line.startswith(f"{path}: ")
        for part in (*key.removesuffix(".algorithm").split("."), *parts):
            assert part in line

    @pytest.mark.parametrize(("key", "hint"), UNKNOWN_KEYS)
    def test_an_unknown_key(self, key: str, hint: str, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        line = _error(lambda: load(save(changed(tiny, key, 1))))
        assert f"unknown key {key}: " in line
        assert hint in line

    @pytest.mark.parametrize(
        ("table", "key", "hint"),
        [
            ({"bufer_size": 3}, "bufer_size", "did you mean 'buffer_size'?"),
            ({"cohort": 3}, "cohort", "buffer_size"),
            ({"staleness": {"name": "polynomial", "b": 1.0}}, "staleness.b", "Allowed: a"),
            ({"staleness": {"name": "constant", "a": 1.0}}, "staleness.a", "constant has no parameters"),
            ({"server_optimizer": {"name": "adam", "beta": 0.5}}, "server_optimizer.beta", "did you mean 'beta"),
        ],
    )
    def test_an_unknown_key_of_an_algorithm(
        self,
        table: dict[str, Any],
        key: str,
        hint: str,
        changed: Changed,
        save: Save,
        tiny: dict[str, Any],
    ) -> None:
        line = _error(lambda: load(save(changed(tiny, "algorithms.fedbuff", table))))
        assert "algorithms.fedbuff" in line
        assert "unknown key" in line
        assert key in line
        assert hint in line

    @pytest.mark.parametrize("key", MISSING_KEYS)
    def test_a_missing_key(self, key: str, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        line = _error(lambda: load(save(changed(tiny, key))))
        assert f"{key} is missing" in line

    @pytest.mark.parametrize("label", ["../outside", "a/b", "/elsewhere/x"])
    def test_a_label_must_be_a_folder_name(self, label: str, save: Save, tiny: dict[str, Any]) -> None:
        """Results go into a folder of this name, which must not lie elsewhere."""
        tiny["algorithms"] = {label: {"algorithm": "fedavg", "cohort": 4}}
        assert label in _error(lambda: load(save(tiny)))

    def test_lossy_clients_without_a_lease(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        line = _error(lambda: load(save(changed(tiny, "server", {}))))
        assert "population.lossy needs server.lease_seconds" in line

    @pytest.mark.parametrize(
        ("key", "value"),
        [("when_away", "lose"), ("availability", {"name": "intervals", "path": "x.csv"})],
    )
    def test_clients_that_may_not_come_back_without_a_lease(
        self, key: str, value: Any, changed: Changed, save: Save, tiny: dict[str, Any]
    ) -> None:
        without = changed(changed(tiny, "population.lossy"), f"population.{key}", value)
        load(save(without))
        line = _error(lambda: load(save(changed(without, "server"))))
        assert f"population.{key}" in line
        assert "needs server.lease_seconds" in line

    def test_a_world_in_which_everything_is_lost(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        everything = {"fraction": 1.0, "probability": 1.0}
        line = _error(lambda: load(save(changed(tiny, "population.lossy", everything))))
        assert "population.lossy: every client loses all its work" in line
        load(save(changed(tiny, "population.lossy", {"fraction": 1.0, "probability": 0.9})))

    def test_no_end(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        line = _error(lambda: load(save(changed(tiny, "stop", {}))))
        assert "stop: set virtual_seconds, versions or updates" in line

    def test_a_single_problem_has_no_count(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        assert "more)" not in _error(lambda: load(save(changed(tiny, "seeds", [-1]))))
        assert "more)" not in _error(lambda: load(save(changed(tiny, "local.lr", -1.0))))

    def test_more_problems_are_counted(self, changed: Changed, save: Save, tiny: dict[str, Any]) -> None:
        table = changed(changed(changed(tiny, "local.lr", -1.0), "local.steps", 0), "stop.versions", 0)
        assert "(and 2 more)" in _error(lambda: load(save(table)))


class TestFile:
    def test_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere.toml"
        assert _error(lambda: load(path)) == f"no such file: {path}"

    def test_a_folder(self, tmp_path: Path) -> None:
        line = _error(lambda: load(tmp_path))
        assert f"cannot read {tmp_path}" in line
        assert "directory" in line

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "cannot read" in _error(lambda: load(tmp_path / "file" / "x.toml"))

    def test_not_utf_8(self, tmp_path: Path) -> None:
        path = tmp_path / "latin.toml"
        path.write_bytes('name = "café"'.encode("latin-1"))
        line = _error(lambda: load(path))
        assert f"cannot read {path}" in line
        assert "not UTF-8" in line

    @pytest.mark.parametrize("text", ["seeds = [1", "a = 1\na = 2", "{}", "[data\nname = 1", "local.lr = 0,1"])
    def test_not_toml(self, text: str, save: Save) -> None:
        path = save(text)
        line = _error(lambda: load(path))
        assert f"{path} is not valid TOML: " in line
        assert "line " in line or "end of document" in line

    def test_empty(self, save: Save) -> None:
        assert "data, model, local, population, stop, evaluate, algorithms are missing" in _error(
            lambda: load(save(""))
        )


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000])
def test_toml_that_is_nested_too_deeply_is_one_line(value: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f"seeds = {value}")
    with pytest.raises(OffbeatError, match=r"x\.toml is not valid TOML: .+$"):
        load(path)


def _error(call: Callable[[], object]) -> str:
    with pytest.raises(OffbeatError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert "pydantic" not in line
    return line
