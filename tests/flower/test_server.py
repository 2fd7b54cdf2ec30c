import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Compression

from offbeat.algorithms import SCAFFOLD, FedAvg, FedBuff, FedLaAvg, FedLuck, LocalPlan, SequentialSGD
from offbeat.flower.server import SavedRun, run_on_grid
from tests.flower.apps import app_of, minus_lr, net
from tests.flower.link import Link

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.25)


@contextmanager
def at_work(link: Link) -> Iterator[None]:
    """Let all nodes answer."""
    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            if not sum(link.answer(number, app_of(minus_lr)) for number in range(len(link.nodes))):
                stop.wait(0.001)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run(algorithm, versions, model=None, plan=PLAN, nodes=2, **options):
    link = Link(nodes)
    with at_work(link):
        return run_on_grid(
            link.grid, algorithm, model or net(), plan, clients=2, versions=versions, look_seconds=0.001, **options
        )


def test_a_run_ends_at_its_version_with_a_complete_model():
    seen = []
    model = net()
    final = run(FedAvg(cohort=2), 3, model, on_version=lambda *made: seen.append(made))
    assert [version for version, _ in seen] == [1, 2, 3]
    assert list(final) == list(model.state_dict())
    assert final["1.weight"].tolist() == [0.25, 0.25]  # 1 − 3 · lr, all from the version before
    assert final["0.weight"].tolist() == final["2.weight"].tolist() == [[0.25, 0.25]] * 2
    assert final["1.running_var"].tolist() == [1, 1]
    assert model[1].weight.tolist() == [1, 1]
    model.load_state_dict(final)


def test_a_run_resumes_in_its_folder(tmp_path):
    run(FedLaAvg(cohort=2, weighting="uniform"), 2, folder=tmp_path)
    assert (tmp_path / "run.safetensors").exists()
    final = run(FedLaAvg(cohort=2, weighting="uniform"), 3, folder=tmp_path)
    assert torch.equal(final["1.weight"], run(FedLaAvg(cohort=2, weighting="uniform"), 3)["1.weight"])
    # Nothing is left to do.
    assert torch.equal(
        run(FedLaAvg(cohort=2, weighting="uniform"), 3, nodes=0, folder=tmp_path)["1.weight"], final["1.weight"]
    )
    with pytest.raises(OffbeatError, match=r"has a run with algorithm = .*: set it back, or take another folder"):
        run(FedLaAvg(cohort=1, weighting="uniform"), 4, folder=tmp_path)


class Zero(FedAvg):
    """Its result is another than its model."""

    @property
    def result(self):
        return self.model * 0


def test_the_final_model_is_the_algorithms_result():
    assert run(Zero(cohort=2), 1)["1.weight"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("algorithm", "plan", "message"),
    [
        (SequentialSGD(), PLAN, "needs all data in one place"),
        (SCAFFOLD(), PLAN, "corrects each local gradient"),
        (FedLuck(), PLAN, "plans by clients' measured speeds"),
        (FedLaAvg(), PLAN, r"weighs all clients .* \(set weighting = 'uniform'\): that is not possible"),
        (
            FedBuff(),
            LocalPlan(steps=1, batch_size=1, lr=0.1, compression=Compression("top_k", (("share", 0.1),))),
            "plan.compression: Flower's apps return whole models",
        ),
        (FedLaAvg(cohort=3, weighting="uniform"), PLAN, "the algorithm: cohort"),
    ],
)
def test_an_algorithm_that_needs_more_is_refused(algorithm, plan, message):
    with pytest.raises(OffbeatError, match=message):
        run(algorithm, 1, plan=plan)


SETTINGS = {"algorithm": {"name": "fedbuff", "buffer_size": 3}, "clients": 2, "model": {"w": (2,)}}


def test_a_run_comes_back(tmp_path):
    with SavedRun(tmp_path / "run", SETTINGS) as saved:
        assert saved.read() is None
        saved.write({"model": torch.arange(2.0), "now": 1.5})
    with SavedRun(tmp_path / "run", SETTINGS) as saved:
        state = saved.read()
    assert (state["model"].tolist(), state["now"]) == ([0, 1], 1.5)


def test_a_folder_is_for_one_run_with_the_same_settings(tmp_path):
    with SavedRun(tmp_path, SETTINGS), pytest.raises(OffbeatError, match="another ServerApp is at work"):
        SavedRun(tmp_path, SETTINGS).__enter__()
    with pytest.raises(OffbeatError, match="has a run with clients = 2, now it is 3: set it back"):
        SavedRun(tmp_path, {**SETTINGS, "clients": 3}).__enter__()
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(OffbeatError, match=r"settings.json is broken: take another folder"):
        SavedRun(tmp_path, SETTINGS).__enter__()
    (tmp_path / "settings.json").unlink()
    with SavedRun(tmp_path, SETTINGS):
        pass


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match=r"cannot use .*file"):
        SavedRun(tmp_path / "file" / "run", SETTINGS).__enter__()
