import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.lr_decay import step

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.components import Compression
from offbeat.config import experiment_sections as sections
from offbeat.config import model_sections, population_sections
from offbeat.config.algorithm_table import hyper_parameters_of
from offbeat.config.experiment_file import Experiment, load
from offbeat.config.experiment_sections import FlowerSection
from offbeat.config.local_section import LocalSection
from offbeat.config.privacy_section import PrivacySection

Load = Callable[..., Experiment]
Save = Callable[..., Path]

Changed = Callable[..., dict[str, Any]]

FULL = """
name = "full-1.0"
seeds = [3, 0, 9223372036854775807]
trainer = "vmap"
device = "cuda:3"
precision = "bf16"
deterministic = false
[data]
name = "data.py:load"
arguments = { size = 3 }
collate = "data.py:pad"
fallback = "digits"
augmentation = "crop-and-flip"
validation = 0.125
on_device = "never"
[model]
name = "mlp"
hidden = [32, 16]
loss = "mse"
batch_norm = "local"
[local]
steps = 7
batch_size = 9
lr = 0.25
optimizer = "adamw"
lr_decay = { name = "step", every = 10, factor = 0.5 }
momentum = 0.0
weight_decay = 0.125
mu = 0.0
clip_norm = 2.0
compression = { name = "random_k", share = 0.25, scaled = false }
error_feedback = true
[population]
clients = 33
partition = { name = "dirichlet", alpha = 0.75 }
holdout = 0.125
step_seconds = { distribution = "constant", value = 1.5 }
down_bytes_per_second = { distribution = "lognormal", median = 1e6, sigma = 0.5 }
up_bytes_per_second = { distribution = "pareto", minimum = 1e3, shape = 1.25 }
availability = { name = "alternating", groups = 2, first_labels = 3, period_seconds = 9.0 }
when_away = "lose"
lossy = { fraction = 0.25, probability = 1.0 }
[server]
lease_seconds = 11.0
max_staleness = 0
update_clip_norm = 3.0
max_update_norm = 4.0
max_step_norm = 5.0
aggregate = "krum"
[privacy]
helper = "https://helper.example:9443"
min_clients = 2
clip_norm = 1.5
noise_multiplier = 3.5
mechanism = "banded"
max_participations = 10
min_separation = 5
bits = 16
delta = 1e-6
epsilon_total = 9.0
[algorithms.one]
algorithm = "fedbuff"
buffer_size = 3
local = { lr = 0.5, optimizer = "sgd", mu = 0.25 }
[algorithms.whole]
algorithm = "fedasync"
local = { compression = { name = "none" }, error_feedback = false, lr_decay = { name = "none" } }
[algorithms.fedavg]
local = { optimizer = "sgd", momentum = 0.5 }
[stop]
virtual_seconds = 100.0
versions = 5
updates = 6
target = 0.5
patience = 7
metric = "loss"
[evaluate]
every_seconds = 0.5
metrics = ["mae", "accuracy"]
better = "higher"
target = 1.0
[flower]
app = "my_app.client_app:app"
run_config = { local-epochs = 2, name = "a" }
"""


class TestEveryKey:
    def test_is_read(self, save: Save) -> None:
        path = save(FULL)
        experiment = load(path)
        read = experiment.model_dump(exclude_none=True)
        written = tomllib.loads(FULL)
        written["data"]["name"] = f"{path.parent}/data.py:load"
        written["data"]["collate"] = f"{path.parent}/data.py:pad"
        written["evaluate"]["metrics"] = ("mae", "accuracy")
        for key in written.keys() - {"seeds", "model", "algorithms"}:
            assert read[key] == written[key]
        assert experiment.seeds == (3, 0, 2**63 - 1)
        assert read["model"] == {"name": "mlp", "hidden": (32, 16), "loss": "mse", "batch_norm": "local"}
        assert list(experiment.algorithms) == ["one", "whole", "fedavg"]
        assert experiment.algorithm("one").name == "fedbuff"
        assert experiment.algorithm("one").buffer_size == 3
        assert experiment.algorithm("fedavg").name == "fedavg"

    def test_the_file_above_has_every_key(self) -> None:
        """A key that is new in a section has to be in ``FULL`` too."""
        written = tomllib.loads(FULL)
        kinds = {
            "data": sections.DataSection,
            "local": LocalSection,
            "population": population_sections.PopulationSection,
            "server": sections.ServerSection,
            "privacy": PrivacySection,
            "stop": sections.StopSection,
            "evaluate": sections.EvaluateSection,
            "flower": FlowerSection,
            "model": model_sections.MlpSection,
        }
        assert set(written) == set(Experiment.model_fields)
        for key, kind in kinds.items():
            # Of two keys of which one is set, the file has one; and it is private, so that clients do not evaluate.
            assert set(written[key]) == set(kind.model_fields) - {"epochs", "every_versions", "on_clients"}, key
        assert set(written["population"]["lossy"]) == set(population_sections.LossySection.model_fields)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    @pytest.mark.parametrize("device", ["cpu", "auto"])
    def test_tf32_needs_an_nvidia_gpu(self, save: Save, device: str) -> None:
        experiment = load(save(FULL), ["precision='tf32'", f"device={device!r}"])
        with pytest.raises(OffbeatError, match="precision = 'tf32' is for NVIDIA GPUs, the device is cpu: use float32"):
            experiment.accelerator()

    def test_a_plan_is_the_section_with_the_algorithms_changes(self, save: Save) -> None:
        experiment = load(save(FULL))
        common = {"steps": 7, "batch_size": 9, "weight_decay": 0.125, "clip_norm": 2.0}
        smaller = {"compression": Compression("random_k", (("share", 0.25), ("scaled", False))), "error_feedback": True}
        decay = step(10, factor=0.5)
        assert experiment.plan("one") == LocalPlan(lr=0.5, mu=0.25, lr_decay=decay, **common, **smaller)
        assert experiment.plan("fedavg") == LocalPlan(lr=0.25, momentum=0.5, lr_decay=decay, **common, **smaller)
        assert experiment.plan("whole") == LocalPlan(lr=0.25, optimizer="adamw", **common)

    def test_the_file_names_the_experiment_and_the_rest_has_defaults(
        self, changed: Changed, save: Save, tiny: dict[str, Any]
    ) -> None:
        experiment = load(save(changed(tiny, "seeds")))
        assert (experiment.name, experiment.seeds) == ("some-name", (1,))
        assert (experiment.metrics, experiment.better) == (("accuracy",), "higher")
        assert experiment.plan("fedavg") == LocalPlan(steps=3, batch_size=8, lr=0.1)

    def test_tables_of_other_programs_are_ignored(self, save: Save, tiny: dict[str, Any]) -> None:
        assert load(save(tiny | {"tool": {"papers": {"seeds": [7]}}})) == load(save(tiny))


class TestMetrics:
    @pytest.mark.parametrize(
        ("changes", "metrics", "better"),
        [
            (["model.loss=bce"], ("accuracy",), "higher"),
            (["model.loss=mse"], (), "lower"),
            (["model.loss=mse", "evaluate.metrics=['mae', 'accuracy']"], ("mae", "accuracy"), "lower"),
            (["evaluate.metrics=['accuracy', 'mae']"], ("accuracy", "mae"), "higher"),
            (["evaluate.metrics=['mse']", "evaluate.better=higher"], ("mse",), "higher"),
            (["evaluate.metrics=['training_loss', 'mse']"], ("training_loss", "mse"), "lower"),
            (["evaluate.metrics=['package:f1']"], ("package:f1",), "higher"),
            (["evaluate.metrics=['package:error']", "evaluate.better=lower"], ("package:error",), "lower"),
            (["evaluate.metrics=[]"], (), "lower"),
        ],
    )
    def test_are_those_of_the_file_or_of_the_loss(
        self, changes: list[str], metrics: tuple[str, ...], better: str, experiment: Load
    ) -> None:
        here = experiment(*changes)
        assert (here.metrics, here.better) == (metrics, better)
        resolved = here.resolved("fedavg", 1, "digits")["evaluate"]
        assert (resolved["metrics"], resolved["better"]) == (metrics, better)


class TestPaths:
    def test_are_relative_to_the_file(
        self, changed: Changed, tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of files, and in the import paths of every place that may hold one."""
        for key, name in (("partition", "name"), ("step_seconds", "distribution"), ("availability", "name")):
            kind = "intervals" if key == "availability" else "file"
            tiny = changed(tiny, f"population.{key}", {name: kind, "path": "../f"})
        places = ("data.name", "data.fallback", "model.name", "model.loss", "algorithms.own.algorithm")
        for key in places:
            tiny = changed(tiny, key, "../own.py:Own")
        (tmp_path / "own.py").write_text(OWN_ALGORITHM)
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "x.toml").write_text(tomli_w.dumps(tiny))
        monkeypatch.chdir(tmp_path)
        found = load(Path("deep/x.toml")).model_dump()
        for key in ("partition", "step_seconds", "availability"):
            assert Path(found["population"][key]["path"]).resolve() == tmp_path.resolve() / "f"
        for key in places:
            value: Any = found
            for part in key.split("."):
                value = value[part]
            assert value == f"{tmp_path.resolve()}/own.py:Own"


OWN_ALGORITHM = """
from offbeat.algorithms import FedBuff

class Own(FedBuff):
    name = "own"
"""


class TestResolved:
    @pytest.mark.parametrize("base", ["full", "tiny"])
    def test_can_be_run_again(self, base: str, save: Save, tiny: dict[str, Any], tmp_path: Path) -> None:
        whole = tomllib.loads(FULL) if base == "full" else tiny
        optimizer = {"name": "adam", "beta1": 0.7, "beta2": 0.9, "epsilon": 1e-5}
        table = {"algorithm": "fedavg", "cohort": 3, "server_lr": 1 / 3, "server_optimizer": optimizer}
        whole["algorithms"]["a label"] = {**table, "local": {"lr": 0.3, "weight_decay": 1 / 3}}
        first = load(save(whole))
        resolved = first.resolved("a label", 7, "digits")
        (tmp_path / "elsewhere").mkdir()
        second = load(save(resolved, "elsewhere/another.toml"))

        assert second.resolved("a label", 7, "digits") == resolved
        assert (second.seeds, second.data.name, second.data.fallback) == ((7,), "digits", None)
        assert list(second.algorithms) == ["a label"]
        assert second.plan("a label") == first.plan("a label")
        for section in ("name", "model", "population", "server", "stop", "metrics", "better"):
            assert getattr(second, section) == getattr(first, section)
        for key in ("every_seconds", "target"):
            assert getattr(second.evaluate, key) == getattr(first.evaluate, key)
        before, after = first.algorithm("a label"), second.algorithm("a label")
        assert hyper_parameters_of(before) == hyper_parameters_of(after)
        assert table.items() <= resolved["algorithms"]["a label"].items()

    @pytest.mark.parametrize(
        "more", [{}, {"arguments": {"size": 3}}, {"collate": "data.py:pad"}, {"augmentation": "crop-and-flip"}], ids=str
    )
    def test_the_augmentation_also_applies_to_the_fallback(
        self, more: dict[str, Any], save: Save, tiny: dict[str, Any]
    ) -> None:
        tiny["data"] = {"name": "data.py:load", "fallback": "digits", **more}
        path = save(tiny)
        own = f"{path.parent}/data.py:load"
        if "collate" in more:
            more = more | {"collate": f"{path.parent}/data.py:pad"}
        assert load(path).resolved("fedavg", 1, own)["data"] == {"name": own, **more}
        more = {key: value for key, value in more.items() if key == "augmentation"}
        assert load(path).resolved("fedavg", 1, "digits")["data"] == {"name": "digits", **more}

    def test_writes_the_defaults_out_and_leaves_out_what_is_switched_off(self, experiment: Load) -> None:
        changes = ["local.compression.name=random_k", "local.compression.share=1"]
        here = experiment(*changes, "algorithms.fedasync.local={ compression = { name = 'none' } }")
        resolved = here.resolved("fedasync", 1, "digits")
        assert resolved["local"] == {
            "steps": 3, "batch_size": 8, "lr": 0.1, "optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "mu": 0.0,
            "error_feedback": False,
        }  # fmt: skip
        compression = {"name": "random_k", "share": 1.0, "scaled": True}
        assert here.resolved("fedbuff", 1, "digits")["local"] == {**resolved["local"], "compression": compression}
        decaying = experiment("local.lr_decay={ name = 'step', every = 5 }", "local.optimizer='adamw'")
        assert decaying.resolved("fedbuff", 1, "digits")["local"] == {
            **resolved["local"], "optimizer": "adamw", "lr_decay": {"name": "step", "every": 5, "factor": 0.1},
        }  # fmt: skip
        assert resolved["algorithms"]["fedasync"] == {
            "algorithm": "fedasync", "mixing_alpha": 0.6, "concurrency": 4,
            "staleness": {"name": "polynomial", "a": 0.5},
        }  # fmt: skip

    def test_a_random_pattern_has_the_runs_seed(self, experiment: Load) -> None:
        table = "{ algorithm = 'async_comm_sgd', pattern = { name = 'random', p = 0.3 } }"
        here = experiment(f"algorithms.mine={table}", "seeds=[3, 4]")
        assert here.resolved("mine", 4, "digits")["algorithms"]["mine"]["pattern"]["seed"] == 4
        assert here.algorithm("mine").pattern.parameters["seed"] == 3

    def test_a_users_pattern_is_relative_to_the_file(self, experiment: Load, save: Save, tmp_path: Path) -> None:
        (tmp_path / "rules.py").write_text("def rule(client, last, clients):\n    return last + 1\n")
        pattern = "{ name = 'rules.py:rule', longest_gap = 1 }"
        here = experiment(f"algorithms.mine={{ algorithm = 'async_comm_sgd', pattern = {pattern} }}")
        resolved = here.resolved("mine", 1, "digits")
        found = f"{tmp_path.resolve()}/rules.py:rule"
        assert resolved["algorithms"]["mine"]["pattern"] == {"name": found, "longest_gap": 1}
        (tmp_path / "elsewhere").mkdir()
        assert load(save(resolved, "elsewhere/again.toml")).resolved("mine", 1, "digits") == resolved
