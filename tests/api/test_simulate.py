import copy
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.lr_decay import exponential
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset

import offbeat
from offbeat.algorithms import AsyncCommSGD, FedAsync, FedAvg, FedBuff, LocalPlan
from offbeat.algorithms.components.schedules.patterns import own
from offbeat.algorithms.components.server_optimizer import adam
from offbeat.compression import top_k
from offbeat.data.dataset import Dataset
from offbeat.runs.directory import EVENTS
from tests.api.conftest import net
from tests.inputs_by_name import WORDS, Sentences, named


class TestArguments:
    def test_is_not_changed(self, simulate, digits):
        model, algorithm = net().eval(), FedBuff(buffer_size=2, concurrency=4, server_optimizer=adam())
        population = {"clients": 12, "lossy": {"fraction": 0.5, "probability": 0.5}}
        data = copy.deepcopy(digits)
        before = {name: value.clone() for name, value in model.state_dict().items()}, vars(algorithm).copy()
        torch.manual_seed(3)
        following = torch.rand(1)
        torch.manual_seed(3)
        simulate(model, data, algorithm, population=population, server={"lease_seconds": 5.0})
        assert torch.equal(torch.rand(1), following)
        assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not model.training
        assert vars(algorithm) == before[1]
        assert population == {"clients": 12, "lossy": {"fraction": 0.5, "probability": 0.5}}
        assert np.array_equal(data.train_inputs, digits.train_inputs)

    def test_twice_is_the_same(self, simulate):
        model, algorithm = net(), FedAvg(cohort=4)
        first = simulate(model, algorithm=algorithm)
        assert first.equals(simulate(model, algorithm=algorithm))
        assert first["version"].iloc[-1] > 2

    def test_threads_are_as_before(self, simulate):
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        seen = []
        try:
            simulate(lambda: (seen.append(torch.get_num_threads()), net())[1])
            with pytest.raises(OffbeatError):
                simulate(virtual_seconds=-1.0)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
        assert seen == [1]

    def test_a_module_begins_from_its_parameters(self, simulate, digits):
        model = net()
        outputs = model(torch.from_numpy(digits.test_inputs))
        table = simulate(model)
        loss = nn.functional.cross_entropy(outputs, torch.from_numpy(digits.test_labels)).item()
        assert table["loss"].iloc[0] == pytest.approx(loss, rel=1e-5)

    def test_a_model_function_starts_from_the_seed(self, simulate):
        losses = [simulate(net, seed=seed)["loss"].iloc[0] for seed in (1, 1, 2)]
        assert losses[0] == losses[1] != losses[2]

    def test_devices_by_client(self, simulate, tmp_path):
        def available(client):
            return [(0.0, 100.0)] if client < 2 else []

        population = {"clients": 12, "step_seconds": lambda client: client + 1.0, "availability": available}
        how = {"population": population, "server": {"lease_seconds": 50.0}, "algorithm": FedAsync(concurrency=12)}
        simulate(**how, output=tmp_path)
        events = pd.read_parquet(tmp_path / "events.parquet")
        assert set(events.client) == {0, 1}
        # Two steps of one second each for client 0, and of two seconds for client 1.
        took = (events.ended_seconds - events.assigned_seconds).groupby(events.client).min()
        assert took[1] - took[0] == pytest.approx(2.0, abs=0.01)
        with pytest.raises(OffbeatError, match=r"population\.availability needs server\.lease_seconds"):
            simulate(population=population)


class TestResult:
    def test_a_name_is_the_algorithm_with_its_defaults(self, simulate):
        assert simulate(algorithm="fedasync").equals(simulate(algorithm=FedAsync()))

    def test_loss_and_metrics_of_the_user(self, simulate):
        def loss(outputs, labels):
            return nn.functional.multi_margin_loss(outputs, labels)

        def top_two(outputs, labels):
            return (outputs.topk(2).indices == labels[:, None]).any(dim=1).float().mean()

        table = simulate(loss=loss, metrics={"top two": top_two, "half": lambda *_: 0.5})
        assert list(table.columns)[-3:] == ["loss", "top two", "half"]
        assert table["top two"].iloc[-1] > 0.5
        assert set(table["half"]) == {0.5}
        assert table["loss"].iloc[-1] < table["loss"].iloc[0]

    @pytest.mark.parametrize(
        ("how", "columns"),
        [
            ({}, ["accuracy"]),
            ({"loss": "cross_entropy", "metrics": []}, []),
            ({"metrics": ["accuracy"]}, ["accuracy"]),
            ({"metrics": ["training_loss", "accuracy"]}, ["accuracy", "training_loss"]),
            ({"loss": lambda o, y: nn.functional.cross_entropy(o, y)}, []),
            ({"loss": nn.CrossEntropyLoss()}, ["accuracy"]),
            ({"loss": nn.functional.cross_entropy}, ["accuracy"]),
        ],
    )
    def test_the_metrics_are_those_of_the_loss(self, how, columns, simulate):
        table = simulate(**how)
        assert list(table.columns)[9:] == columns

    def test_regression(self, simulate):
        inputs = torch.linspace(-1, 1, 120)[:, None]
        data = TensorDataset(inputs, 3 * inputs + 1)
        table = simulate(
            lambda: nn.Linear(1, 1), (data, data), loss="mse", metrics=["mae"], virtual_seconds=200.0,
            evaluate_every_seconds=200.0,
        )  # fmt: skip
        assert table["loss"].iloc[-1] < 0.01
        assert table["mae"].iloc[-1] < 0.1

    @pytest.mark.parametrize(
        ("stop", "column", "value"), [({"versions": 3}, "version", 3), ({"updates": 7}, "counted", 7)]
    )
    def test_ends(self, stop, column, value, simulate):
        assert simulate(virtual_seconds=None, **stop)[column].iloc[-1] == value

    def test_compressed_updates_are_smaller(self, simulate):
        plan = LocalPlan(2, 8, 0.1, compression=cast("Any", top_k(share=0.1)))
        table = simulate(local=plan)
        local = {"steps": 2, "batch_size": 8, "lr": 0.1, "compression": {"name": "top_k", "share": 0.1}}
        pd.testing.assert_frame_equal(simulate(local=local), table)
        last = table.iloc[-1]
        assert last["counted"] > 5
        # 650 parameters: 65 values of 4 bytes; their places as 650 bits or less; and a header.
        assert 65 * 4 < last["bytes_up"] / (last["counted"] + last["unused"]) < 65 * 4 + 82 + 40
        assert last["bytes_down"] > 650 * 4 * last["counted"]
        assert table["loss"].iloc[-1] < table["loss"].iloc[0]

    def test_private_updates_spend_epsilon(self, simulate):
        privacy = {"clip_norm": 1.0, "noise_multiplier": 2.0, "max_participations": 4, "delta": 1e-4}
        table = simulate(privacy=privacy, versions=6)
        assert table["epsilon"].tolist() == sorted(table["epsilon"])
        assert 0 < table["epsilon"].iloc[-1] < table["epsilon_replace_one"].iloc[-1]
        plain = simulate(versions=6)
        assert "epsilon" not in plain
        assert plain["loss"].iloc[-1] != table["loss"].iloc[-1]

    def test_adamw_and_a_decay_from_a_plan_or_a_table(self, simulate):
        local = {"steps": 2, "batch_size": 8, "lr": 0.01, "optimizer": "adamw", "weight_decay": 0.1}
        table = simulate(local=local | {"lr_decay": {"name": "exponential", "factor": 0.5}}, versions=6)
        plan = LocalPlan(**local, lr_decay=exponential(0.5))
        pd.testing.assert_frame_equal(table, simulate(local=plan, versions=6))
        assert table["loss"].iloc[-1] < table["loss"].iloc[0]
        for other in (local, local | {"optimizer": "sgd", "lr_decay": {"name": "exponential", "factor": 0.5}}):
            changed = simulate(local=other, versions=6)
            assert changed["seconds"].tolist() == table["seconds"].tolist()
            assert changed["loss"].iloc[-1] != table["loss"].iloc[-1]

    def test_augmentation_is_for_training_only(self, simulate):
        plain, changed = simulate(), simulate(augmentation="crop-and-flip")
        assert changed["loss"].iloc[0] == plain["loss"].iloc[0]
        assert changed["loss"].iloc[-1] != plain["loss"].iloc[-1]
        pd.testing.assert_frame_equal(simulate(augmentation=None), plain)

    def test_a_users_pattern(self, simulate):
        asked = set()

        def every_third(client, last, clients):
            asked.add(client)
            return last + 3

        algorithm = AsyncCommSGD(pattern=own(every_third, 3), period=4.0)
        before = dict(vars(algorithm))
        table = simulate(algorithm=algorithm, virtual_seconds=60.0)
        assert asked == set(range(12))
        assert table["version"].iloc[-1] == 15
        assert table["counted"].iloc[-1] > 12
        assert vars(algorithm) == before

    def test_output(self, simulate, tmp_path):
        table = simulate(output=str(tmp_path / "a" / "b"))
        folder = tmp_path / "a" / "b"
        assert {path.name for path in folder.iterdir()} == {"history.parquet", "events.parquet", "model.safetensors"}
        events = pq.read_table(folder / "events.parquet")
        assert [(f.name, f.type) for f in events.schema] == [(f.name, f.type) for f in EVENTS]
        assert events.num_rows == table[["counted", "unused", "lost"]].iloc[-1].sum()
        assert load_file(folder / "model.safetensors")["1.weight"].shape == (10, 64)

    def test_what_is_implausible_is_a_line(self, simulate, capsys):
        population = {"clients": 2, "availability": [[[0, 50]], [[1.7e9, 1.8e9]]]}
        simulate(population=population, server={"lease_seconds": 60}, virtual_seconds=5, progress=True)
        assert capsys.readouterr().out.startswith("1 of 2 clients is never available within 5.0 s: 1.\n")
        population["availability"] = [[[1.7e9, 1.8e9]], [[1.7e9, 1.8e9]]]
        with pytest.raises(OffbeatError, match=r"population\.availability: no client is available within 5\.0 s"):
            simulate(population=population, server={"lease_seconds": 60}, virtual_seconds=5)

    def test_progress_is_a_line(self, simulate, capsys):
        simulate(progress=False)
        assert capsys.readouterr() == ("", "")
        simulate(progress=True)
        assert capsys.readouterr().out.startswith("fedbuff, seed 1: ")


def test_import_paths_are_as_in_a_file(simulate, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from offbeat.data import load_dataset\nfrom torch.nn import functional\n"
        "def digits(): return load_dataset('digits')\n"
        "def loss(outputs, labels): return functional.cross_entropy(outputs, labels)\n"
        "def right(outputs, labels): return (outputs.argmax(1) == labels).float().mean()\n"
    )
    mine = f"{tmp_path}/mine.py:"
    table = simulate(data=f"{mine}digits", loss=f"{mine}loss", metrics=[f"{mine}right", "accuracy"], trainer="loop")
    assert list(table.columns)[-2:] == ["right", "accuracy"]
    assert table.drop(columns="right").equals(simulate(trainer="loop"))
    assert table.right.tolist() == pytest.approx(table.accuracy.tolist())


def test_a_folder_with_a_run_is_refused(simulate, tmp_path):
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(OffbeatError, match=r"holds a run: choose another folder$"):
        simulate(output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_an_output_that_cannot_be_written_is_found_before_the_work(simulate, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("offbeat.worlds.simulation.World.build", lambda *_, **__: pytest.fail("began"))
    for output in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(OffbeatError, match="cannot write into"):
            simulate(output=output)


def test_the_package_exports_it():
    assert set(offbeat.__all__) == {"Dataset", "OffbeatError", "simulate", "write_report"}
    assert offbeat.Dataset is Dataset
    assert offbeat.OffbeatError is OffbeatError
    with pytest.raises(AttributeError, match="simulat"):
        _ = offbeat.simulat


class TestInputsByName:
    """Sentences of different lengths, a model with names for its inputs, and its own loss."""

    @pytest.fixture
    def sentences(self):
        random = np.random.default_rng(3)
        words = [random.integers(1, WORDS, size=length) for length in random.integers(1, 7, size=60)]
        return [{"words": row, "label": int(row.mean() > WORDS / 2)} for row in words]

    @pytest.mark.usefixtures("forked_workers")
    def test_are_learnt(self, simulate, sentences):
        def pad(examples):
            rows = [torch.tensor(example["words"]) for example in examples]
            return named(pad_sequence(rows, batch_first=True)), [example["label"] for example in examples]

        first, *others = [
            simulate(
                Sentences, (sentences, sentences[:50]), collate=pad, loss=loss, metrics=["accuracy"], trainer=trainer,
                local={"steps": 5, "batch_size": 8, "lr": 0.2},
            )
            for trainer, loss in (
                ("loop", "model"), ("loop", "cross_entropy"), ("vmap", "model"), ("vmap", "cross_entropy"),
                ("processes", "model"),
            )
        ]  # fmt: skip
        assert first.loss.iloc[-1] < first.loss.iloc[0]
        for other in others:
            pd.testing.assert_frame_equal(other, first, rtol=1e-4)

    def test_collate_is_for_data_of_ones_own(self, simulate):
        with pytest.raises(OffbeatError, match=r"^collate is for data of your own: set data to them, or leave it out$"):
            simulate(collate=list)

    def test_a_model_that_returns_no_loss_is_one_line(self, simulate):
        with pytest.raises(OffbeatError, match=r"the model cannot take inputs .* unexpected keyword argument 'labels'"):
            simulate(loss="model")
