import itertools
import sys
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms.components import WrongStepError
from offbeat.runs import run as run_module
from offbeat.runs import writer as run_writer
from offbeat.runs.directory import read, read_client_time, read_labels
from offbeat.runs.interruption import InterruptedRunError
from offbeat.runs.run import RunTask, carry_out
from offbeat.runs.writer import RunWriter
from offbeat.simulation.training_queue import DivergedError
from offbeat.tensor_file import read_checkpoint, write_checkpoint
from offbeat.worlds.population import build_population

LABELS = ["fedavg", "fedasync", "fedbuff"]
# Much that has a state: an optimizer, clients that come and go.
CHANGES = (
    "model={ name = 'mlp', hidden = [4] }",
    "population.availability={ name = 'alternating', period_seconds = 7.0 }",
    "algorithms.fedbuff.server_optimizer={ name = 'adam' }",
)

# With compression, memories of clients, plans of their own, clocks, visits that are cut short.
REMEMBERING = {
    "fedlaavg": "{ cohort = 4, local = { compression = { name = 'top_k', share = 0.2 } } }",
    "fedbuff": "{ concurrency = 8, local = { compression = { name = 'sign' }, error_feedback = true } }",
    "port": "{ min_clients = 2, staleness_bound = 2, concurrency = 6, local = { epochs = 1.5 } }",
    "async_comm_sgd": "{ period = 3.0, average = true, step_sizes = { name = 'inverse_square_root' } }",
    "fedluck": "{ period = 5.0, steps = [1, 8], compression = [0.05, 1.0] }",
}


@pytest.fixture
def task(tmp_path, experiment):
    def make(name, label="fedbuff", *, every=1e9, **how):
        return RunTask(how.get("experiment") or experiment(*CHANGES), label, 1, tmp_path / name, every, "")

    return make


@pytest.fixture
def carried_out(digits):
    """Return a function that runs a task, until the given check, and returns its evaluations."""

    def carry(task, checks=-1):
        evaluations = []
        left = itertools.count(checks - 1, -1)

        def check():
            if next(left) == 0:
                raise InterruptedRunError(15)

        carry_out(task, digits, on_evaluation=evaluations.append, check=check)
        return evaluations

    return carry


@pytest.fixture(scope="module")
def finished():
    return {}


@pytest.fixture
def whole(finished, task, carried_out, tmp_path_factory):
    """Return a function that returns a label's evaluations and folder without an interruption; it runs once."""

    def run(label="fedbuff"):
        if label not in finished:
            path = tmp_path_factory.mktemp("whole") / "run"
            finished[label] = carried_out(replace(task("", label), path=path)), path
        return finished[label]

    return run


def test_evaluations_are_those_in_the_folder(whole, digits):
    evaluations, folder = whole()
    run = read(folder)
    assert run.history["seconds"].tolist() == [evaluation.seconds for evaluation in evaluations] == [0, 20, 40, 60]
    assert [evaluation.metrics["accuracy"] for evaluation in evaluations] == run.history["accuracy"].tolist()
    assert [evaluation.loss for evaluation in evaluations] == run.history["loss"].tolist()
    assert len(run.events["client"]) == evaluations[-1].counted + evaluations[-1].unused + evaluations[-1].lost > 20
    assert (run.label, run.config["model"]["hidden"]) == ("fedbuff", [4])
    assert run.real_seconds > 0
    # Visits that are open at the end have no row; half of the clients are offline at any time.
    time = read_client_time(run)
    in_rows = (run.events["ended_seconds"] - run.events["assigned_seconds"]).sum()
    assert time.clients * 60 > time.working_seconds + time.waiting_seconds > time.working_seconds >= in_rows
    # The accuracies by label make up the accuracy.
    by_label = read_labels(run)
    labels, counts = np.unique(digits.test_labels, return_counts=True)
    assert list(by_label) == [str(label) for label in labels]
    assert np.average(list(by_label.values()), weights=counts) == pytest.approx(run.history["accuracy"][-1])


class TestInterruption:
    @pytest.mark.parametrize(("label", "checks"), [("fedavg", 150), ("fedasync", 40), ("fedbuff", 1), ("fedbuff", 77)])
    def test_a_resumed_run_writes_the_same_files(self, checks, label, task, whole, carried_out, files, tmp_path):
        evaluations, folder = whole(label)
        with pytest.raises(InterruptedRunError):
            carried_out(task("x", label), checks)
        assert not (tmp_path / "x").exists()
        resumed = carried_out(task("x", label))
        assert files(tmp_path / "x") == files(folder)
        assert not (tmp_path / "x.unfinished").exists()
        # The progress is shown at once.
        assert resumed == evaluations[-len(resumed) :]
        assert 1 < len(resumed) < len(evaluations) or checks < 100

    @pytest.mark.parametrize("label", LABELS)
    def test_a_run_may_be_resumed_many_times(self, label, task, whole, carried_out, files, tmp_path):
        times = 0
        for checks in [1, 5, 60] * 20:
            try:
                carried_out(task("x", label, every=1e-9), checks)
                break
            except InterruptedRunError:
                times += 1
                torch.rand(3)  # another process has another generator
        assert times > 5
        assert files(tmp_path / "x") == files(whole(label)[1])

    @pytest.mark.parametrize("label", REMEMBERING)
    def test_client_memories_are_resumed(self, label, task, carried_out, experiment, files, tmp_path):
        # Few clients and short leases, so that each has many visits.
        world = ("population.clients=8", "server.lease_seconds=5")
        here = experiment(*world, f"algorithms={{ {label} = {REMEMBERING[label]} }}")
        whole = carried_out(task("whole", label, experiment=here))
        for checks in (60, 50):
            with pytest.raises(InterruptedRunError):
                carried_out(task("x", label, experiment=here), checks)
        state = read_checkpoint(tmp_path / "x.unfinished" / "checkpoint.safetensors")
        assert (len(state["memories_of"]) > 0) is (label in ("fedlaavg", "fedbuff"))
        carried_out(task("x", label, experiment=here))
        assert files(tmp_path / "x") == files(tmp_path / "whole")
        assert whole[-1].counted > 15
        assert whole[-1].loss < whole[0].loss

    def test_checkpoints_change_nothing_wherever_they_are(self, task, whole, carried_out, files, tmp_path, monkeypatch):
        written = []
        checkpoint = RunWriter.checkpoint

        def count(self, state, real_seconds, processor_seconds):
            written.append(real_seconds)
            checkpoint(self, state, real_seconds, processor_seconds)

        monkeypatch.setattr(RunWriter, "checkpoint", count)
        monkeypatch.setattr(run_module, "_SHARE_OF_CHECKPOINTS", 1e9)
        carried_out(task("x", every=1e-9))
        assert len(written) > 100
        assert files(tmp_path / "x") == files(whole()[1])

    def test_real_seconds_add_up(self, task, carried_out, tmp_path):
        with pytest.raises(InterruptedRunError):
            carried_out(task("x"), 100)
        path = tmp_path / "x.unfinished" / "checkpoint.safetensors"
        write_checkpoint(path, {**read_checkpoint(path), "real_seconds": 1000.0})
        carried_out(task("x"))
        assert 1000.0 < read(tmp_path / "x").real_seconds < 1100.0


class TestResumeWithAnotherModel:
    """The settings are the same, but the user's code is not, in a way that the hashes of files do not show."""

    MODEL = "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), {})\n"

    @pytest.mark.parametrize(
        ("label", "layers"),
        [
            ("fedavg", "nn.Linear(64, 12)"),
            ("fedasync", "nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10)"),
            ("fedbuff", "nn.Linear(64, 10, bias=False)"),
        ],
    )
    def test_is_one_line(self, layers, label, task, carried_out, experiment, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        (tmp_path / "installed_net.py").write_text(self.MODEL.format("nn.Linear(64, 10)"))
        here = experiment("model={ name = 'installed_net:net' }")
        with pytest.raises(InterruptedRunError):
            carried_out(task("x", label, experiment=here), 60)
        (tmp_path / "installed_net.py").write_text(self.MODEL.format(layers))
        del sys.modules["installed_net"]  # as a new process has it
        monkeypatch.setattr(run_writer, "check_versions", lambda *_: None)
        with pytest.raises(OffbeatError, match=rf"checkpoint of {label}, seed 1, does not fit this model.*--fresh"):
            carried_out(task("x", label, experiment=here))


def test_data_that_differ_from_the_comparison_are_refused(task, carried_out):
    with pytest.raises(OffbeatError, match=r"returns other data at each call.*generator with a seed$"):
        carried_out(replace(task("x"), data="0123456789abcdef"))


class TestCheckpoints:
    def test_checkpoints_take_at_most_a_twentieth_of_the_time(self, task, carried_out, monkeypatch):
        now = [0.0]
        written = []
        step, checkpoint = run_module.Simulation.step, RunWriter.checkpoint

        def step_of_a_second(self):
            now[0] += 1.0
            return step(self)

        def slow_checkpoint(self, state, real_seconds, processor_seconds):
            checkpoint(self, state, real_seconds, processor_seconds)
            written.append(now[0])
            now[0] += 0.1 if len(written) < 5 else 3.0

        monkeypatch.setattr(run_module.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(run_module.Simulation, "step", step_of_a_second)
        monkeypatch.setattr(RunWriter, "checkpoint", slow_checkpoint)
        carried_out(task("x", every=10.0))
        apart = [b - a for a, b in itertools.pairwise(written)]
        # From the beginning of one to the beginning of the next: 0.1 s would allow 2 s, but 3 s ask for 60 s.
        assert apart[:4] == pytest.approx([10.1] * 4, abs=1.0)
        assert apart[4:] == pytest.approx([60.0] * len(apart[4:]), abs=3.5)
        assert len(apart) > 5

    def test_none_is_written_before_it_is_due(self, task, carried_out, monkeypatch):
        monkeypatch.setattr(RunWriter, "checkpoint", lambda *_: pytest.fail("a checkpoint"))
        carried_out(task("x", every=1e9))


OWN = """
import torch
from offbeat.algorithms import FedBuff


class Momentum(FedBuff):
    name = "momentum"

    def begin(self, model):
        self.momentum = torch.zeros_like(model)

    def next_model(self, model, closed):
        self.momentum = 0.5 * self.momentum + closed.total()
        return (model - self.momentum).to(DTYPE)

    def state_dict(self):
        return {key: value for key, value in super().state_dict().items() if key != "momentum"}

    def load_state_dict(self, state):
        super().load_state_dict({**state, "momentum": torch.zeros_like(state["model"])})
"""


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["at the first checkpoint", "when it is interrupted"])
def test_a_forgotten_state_is_an_error_at_the_first_checkpoint(every, task, carried_out, experiment, tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("DTYPE", "torch.float32"))
    own = experiment(f"algorithms.own={{ algorithm = '{tmp_path}/own.py:Momentum', buffer_size = 2 }}")
    with pytest.raises(OffbeatError, match=r"algorithms\.own: a restart forgets the attribute 'momentum': save it"):
        carried_out(task("forgets", "own", experiment=own, every=every), 60)
    assert not (tmp_path / "forgets").exists()


def test_a_step_that_becomes_float64_during_a_run_is_one_line(task, carried_out, experiment, tmp_path):
    later = "torch.float64 if closed.version else torch.float32"
    (tmp_path / "later.py").write_text(OWN.replace("DTYPE", later))
    own = experiment(f"algorithms.own={{ algorithm = '{tmp_path}/later.py:Momentum', buffer_size = 2 }}")
    with pytest.raises(OffbeatError, match=r"own, seed 1: next_model must return float32 of shape .* returned float64"):
        carried_out(task("later", "own", experiment=own))


@pytest.mark.parametrize(
    ("every", "checks"), [(1e-9, -1), (1e9, 200)], ids=["when it is due", "when it is interrupted"]
)
class TestErrorsThatACheckpointIsTheFirstToSee:
    """The checkpoint reads a buffer that no step of the run ever closes."""

    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch):
        monkeypatch.setattr(run_module, "_SHARE_OF_CHECKPOINTS", 1e9)

    @pytest.fixture
    def diverging(self, task, experiment, every):
        table = "algorithms.fedbuff={ buffer_size = 1000, concurrency = 4, local = { lr = 1e30 } }"
        return task("x", experiment=experiment("model={ name = 'mlp', hidden = [4] }", table), every=every)

    def test_a_divergence_names_the_run(self, diverging, checks, carried_out):
        with pytest.raises(DivergedError, match=r"^fedbuff, seed 1: training diverged: client \d+"):
            carried_out(diverging, checks)

    def test_a_divergence_that_is_kept_ends_the_run_with_nan(self, diverging, checks, carried_out):
        evaluations = carried_out(replace(diverging, keep_diverged=True), checks)
        run = read(diverging.path)
        assert run.finished
        assert run.history["seconds"].tolist() == [evaluation.seconds for evaluation in evaluations]
        assert np.isnan([run.history["loss"][-1], run.history["accuracy"][-1]]).all()

    def test_a_wrong_step_is_one_line(self, task, experiment, every, checks, carried_out, monkeypatch):
        def wrong(self):
            raise WrongStepError("next_model must return float32")

        monkeypatch.setattr(run_module.Simulation, "state_dict", wrong)
        with pytest.raises(OffbeatError, match=r"^fedbuff, seed 1: next_model must return float32$"):
            carried_out(task("x", every=every), checks)


class TestEvaluationOnClients:
    def test_it_changes_neither_events_nor_model_nor_other_columns(self, task, carried_out, experiment):
        changes = (*CHANGES, "population.holdout=0.25")
        plain = task("plain", experiment=experiment(*changes))
        on_clients = task("on_clients", experiment=experiment(*changes, "evaluate.on_clients=6"))
        for one in (plain, on_clients):
            carried_out(one)
        for name in ("events.parquet", "model.safetensors"):
            assert (plain.path / name).read_bytes() == (on_clients.path / name).read_bytes()
        history, more = (pq.read_table(one.path / "history.parquet").to_pydict() for one in (plain, on_clients))
        assert history == {name: more[name] for name in history}
        assert not (plain.path / "clients.parquet").exists()

    def test_the_history_is_the_summary_of_the_rows_by_client(self, task, carried_out, experiment, digits):
        metrics = "evaluate.metrics=['accuracy', 'training_loss']"
        here = experiment("population.holdout=0.25", "evaluate.on_clients=6", metrics, "stop.virtual_seconds=20")
        run = task("out", experiment=here)
        carried_out(run)
        rows = pq.read_table(run.path / "clients.parquet").to_pandas()
        assert list(rows) == ["seconds", "version", "client", "examples", "loss", "accuracy"]
        held_out = [len(part) for part in build_population(here.population, digits, 1).held_out]
        assert rows["examples"].tolist() == [held_out[client] for client in rows["client"]]
        history = read(run.path).history
        for index, version in enumerate(history["version"]):
            mine = rows[rows["version"] == version]
            assert history["clients_evaluated"][index] == len(mine) == 6
            right = (mine["accuracy"] * mine["examples"]).round()
            assert history["client_accuracy"][index] == pytest.approx(right.sum() / mine["examples"].sum())
            assert history["client_loss_worst"][index] == mine["loss"].max()
