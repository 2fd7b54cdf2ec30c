"""The connection to a Ray cluster: addresses that do not work."""

import importlib.util
import socket

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.distributed.ray_cluster import RayCluster, check_ray, connect
from offbeat.training.trainers.distributed.ray_pool import RayPool
from tests.training.conftest import data_of
from tests.training.trainers.conftest import linear
from tests.workloads import workload_of

HINT = "check --ray-address, and that the cluster has the same versions of Python and Ray"


class FakeRay:
    """Stands for the module ``ray``, with a cluster of ten processors that refuses to answer."""

    class exceptions:  # noqa: N801
        RayError = Exception

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.given: dict[str, object] = {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **given: object) -> None:
        self.given = given
        if self.error is not None:
            raise self.error

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 10.0}


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr("offbeat.training.trainers.distributed.ray_cluster.import_ray", lambda: fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


@pytest.mark.parametrize(("runs", "share"), [(1, 10), (3, 3), (20, 1)])
def test_a_run_takes_its_share_of_the_processors(ray, runs, share):
    assert connect(RayCluster("auto", runs), workers=2) == share
    assert (ray.given["address"], ray.given["num_cpus"]) == ("auto", None)


def test_without_an_address_this_machine_is_the_cluster(ray, monkeypatch):
    assert connect(RayCluster(runs=2), workers=3) == 3
    assert (ray.given["address"], ray.given["num_cpus"], ray.given["include_dashboard"]) == ("local", 3, False)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert connect(RayCluster(), workers=3) == 10
    assert ray.given["address"] == "auto"


@pytest.mark.parametrize(
    ("address", "error", "line"),
    [
        (
            "auto",
            RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0"),
            "trainer = 'ray': no connection to auto (RuntimeError: Version mismatch: The cluster was started with:): "
            f"{HINT}",
        ),
        (None, OSError("no memory"), f"trainer = 'ray': no cluster can be started (OSError: no memory): {HINT}"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(ray, address, error, line):
    ray.error = error
    with pytest.raises(OffbeatError) as caught:
        connect(RayCluster(address), workers=2)
    assert str(caught.value) == line


@pytest.mark.usefixtures("ray")
def test_an_address_that_does_not_answer_is_refused_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect(RayCluster(f"127.0.0.1:{port}"), workers=2)
    with pytest.raises(OffbeatError) as caught:
        connect(RayCluster(f"127.0.0.1:{port}"), workers=2)
    assert str(caught.value).startswith(f"trainer = 'ray': no answer from 127.0.0.1:{port} (ConnectionRefusedError: ")
    assert str(caught.value).endswith("): check --ray-address")
    with pytest.raises(OffbeatError, match=r"^trainer = 'ray': no answer from 127.0.0.1:x \(ValueError"):
        connect(RayCluster("127.0.0.1:x"), workers=2)


def test_ray_that_is_not_installed_is_refused(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else real(name))
    line = r"^trainer = 'ray': Ray is not installed: pip install 'offbeat\[ray\]'$"
    with pytest.raises(OffbeatError, match=line):
        check_ray()
    workload = workload_of(FlatModel(linear()), **data_of((3,), 6, classes=3))
    with pytest.raises(OffbeatError, match=line):
        RayPool(workload, workers=1)
