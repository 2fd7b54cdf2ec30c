"""A client of a server of several runs, each a real one."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from offbeat_client.client_run import run_client
from offbeat_client.http.connection import Backoff, Connection
from offbeat_client.visit import Fit, Visit
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_json
from offbeat_core.http.service_errors import ServiceError
from offbeat_core.local_plan import Compression

from offbeat.algorithms import SCAFFOLD
from offbeat.service.server import admin
from tests.offbeat_client.conftest import KilledError
from tests.offbeat_client.helper_facts import private_folder
from tests.offbeat_client.many_runs import ManyRuns, hosting
from tests.service.conftest import PLAN
from tests.service.http_client import until

TOP_K = replace(PLAN, compression=Compression("top_k", (("share", 0.4),)), error_feedback=True)

Arrays = dict[str, Any]


def fit(model: Arrays, visit: Visit) -> tuple[Arrays, int]:
    """Return what depends on model, offset and visit."""
    change = np.sin(np.arange(6, dtype=np.float32) * (visit.number + 1.3))
    if visit.offset is not None:
        change += np.concatenate([array.reshape(-1) for array in visit.offset.values()]) / 9
    return {"weight": 0.9 * model["weight"] - change[:4].reshape(2, 2), "bias": model["bias"] - change[4:]}, 3


fit.corrects_gradients = True  # pyright: ignore[reportFunctionMemberAccess]


@pytest.fixture
def join(tmp_path: Path, quick: Backoff) -> Callable[..., int]:
    """Return a function that runs a client in the folder ``site``."""

    def call(host: ManyRuns, make_client: Callable[..., Any] = lambda client: fit, **options: Any) -> int:
        options = {"enrolment_token": "obe_1", "backoff": quick, **options}
        return run_client(host.url, make_client, tmp_path / "site", **options)

    return call


class Wire:
    """The requests that the client sends, and the errors that it gets in place of answers, by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[tuple[str, str]] = []
        self.supports: dict[str, str] = {}
        self.faults: dict[str, BaseException] = {}
        real = Connection.send

        def send(connection: Connection, method: str, path: str, **options: Any) -> Any:
            path_and_query = urlsplit(connection.url + path)
            self.heard.append((method, path_and_query.path))
            self.supports[path_and_query.path] = connection.supports
            if path_and_query.path in self.faults:
                raise self.faults[path_and_query.path]
            return real(connection, method, path, **options)

        monkeypatch.setattr(Connection, "send", send)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def models(host: ManyRuns) -> dict[str, list[float]]:
    return {name: served.service.engine.coordinator.algorithm.model.tolist() for name, served in host.runs.items()}


def test_a_client_takes_turns_in_its_runs_until_all_are_over(tmp_path: Path, join: Callable[..., int]) -> None:
    made: list[tuple[int, str]] = []

    def make_client(client: int, run: str) -> Fit:
        made.append((client, run))
        return fit

    with hosting(tmp_path / "host", a={}, b={"stop_versions": 2}) as host:
        assert join(host, make_client) == 5
        assert host.given == ["a", "b", "a", "b", "a"]
        assert [served.service.status().version for served in host.runs.values()] == [3, 2]
        for name, served in host.runs.items():
            home = tmp_path / "site" / "runs" / name
            identity = read_json(home / "identity.json", dict)
            assert identity is not None
            assert (identity["server"], identity["client"]) == (f"{host.url}/runs/{name}", 0)
            assert (home / "audit-heads").read_text().splitlines()[-1] == str(served.service.accounts.audit.head)
    assert sorted(made) == [(0, "a"), (0, "b")]
    assert not (tmp_path / "site" / "kept.json").exists()


def test_visits_count_over_all_runs_and_the_next_process_resumes(
    tmp_path: Path, join: Callable[..., int], wire: Wire
) -> None:
    with hosting(tmp_path / "host", a={}, b={}) as host:
        assert join(host, visits=3) == 3
        assert join(host, enrolment_token=None) == 3
        assert sorted(host.given) == ["a"] * 3 + ["b"] * 3
        assert wire.heard.count(("POST", "/v1/enrol")) == 1


def breaks(model: Arrays, visit: Visit) -> None:
    raise KeyError("readings")


@pytest.mark.parametrize(
    ("make_client", "options", "problem"),
    [
        (lambda client, run: breaks if run == "b" else fit, {}, "visit 0: the client's fit failed: KeyError"),
        (lambda client, run: {"a": fit}[run], {}, "making the client failed: KeyError: 'b'"),
        (lambda client: lambda *visit: fit(*visit), {"make": lambda: SCAFFOLD(cohort=1)}, "corrects_gradients = True"),
    ],
)
def test_a_run_that_fails_leaves_the_others(
    tmp_path: Path,
    join: Callable[..., int],
    caplog: pytest.LogCaptureFixture,
    make_client: Any,
    options: Any,
    problem: str,
) -> None:
    with hosting(tmp_path / "host", a={"stop_versions": 5}, b=options) as host, ThreadPoolExecutor() as pool:
        joined = pool.submit(join, host, make_client)
        until(lambda: host.runs["a"].service.status().finished)
        until(lambda: host.questions[-1].get("without") == ["b"])
        assert host.given == ["a", "b", "a", "a", "a", "a"]
        assert not joined.done()  # there may be other runs
        del host.runs["b"]
        with pytest.raises(OffbeatError) as raised:
            joined.result(30)
    assert f"the client has failed in {host.url}/runs/b: " in str(raised.value)
    assert problem in str(raised.value)
    assert sum(problem in message for message in caplog.messages) == 1


def test_a_run_that_does_not_answer_leaves_the_others_for_some_time(
    tmp_path: Path,
    join: Callable[..., int],
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("offbeat_client.server_runs._RETRY_SECONDS", 0.2)
    trained: list[Visit] = []

    def train(model: Arrays, visit: Visit) -> Any:
        trained.append(visit)
        return fit(model, visit)

    with hosting(tmp_path / "host", a={}, b={}) as host, ThreadPoolExecutor() as pool:
        wire.faults["/runs/a/v1/uploads/0"] = ServiceError("PUT", 503, "stopping", "run a has failed")
        joined = pool.submit(join, host, lambda client: train)
        until(lambda: host.runs["b"].service.status().finished)
        until(lambda: caplog.text.count("the client asks there again in 0.2 seconds") > 1)
        assert host.questions[-1]["without"] == ["a"]
        wire.faults.clear()
        assert joined.result(30) == 6
    assert len(trained) == 6


def test_a_site_that_is_refused_ends(tmp_path: Path, join: Callable[..., int]) -> None:
    with hosting(tmp_path / "host", a={}) as host:
        join(host, visits=1)
        host.tokens.clear()
        with pytest.raises(OffbeatError, match="POST /v1/work: unknown"):
            join(host)


def test_tokens_are_renewed_at_the_root_and_used_in_all_runs(
    tmp_path: Path, join: Callable[..., int], wire: Wire
) -> None:
    with hosting(tmp_path / "host", expires_seconds=0.0, a={}, b={}) as host:
        assert join(host) == 6
    renewals = [path for _, path in wire.heard if path.endswith("/v1/token")]
    assert len(renewals) >= 6
    assert set(renewals) == {"/v1/token"}


def test_the_server_learns_what_the_clients_of_the_runs_support(
    tmp_path: Path, join: Callable[..., int], wire: Wire
) -> None:
    def make_client(client: int, run: str) -> Any:
        return fit if run == "b" else SimpleNamespace(fit=fit, evaluate=lambda model: ({"loss": 0.0}, 1))

    with hosting(tmp_path / "host", a={}, b={}) as host:
        join(host, make_client)
    assert wire.supports["/runs/a/v1/checkin"] == "needs_loss, evaluate"
    assert wire.supports["/runs/b/v1/checkin"] == "needs_loss, corrects_gradients, keeps_regulariser"
    assert wire.supports["/v1/work"] == "needs_loss, evaluate, corrects_gradients, keeps_regulariser"


def test_the_visit_of_a_client_that_cannot_be_made_is_given_up(
    tmp_path: Path, join: Callable[..., int], wire: Wire
) -> None:
    with hosting(tmp_path / "host", a={}, b={}) as host, ThreadPoolExecutor() as pool:
        joined = pool.submit(join, host, lambda client, run: {"a": fit}[run])
        until(lambda: ("POST", "/runs/b/v1/visits/0/give-up") in wire.heard)
        until(lambda: host.runs["b"].service.status().at_work == 0)
        del host.runs["b"]
        with pytest.raises(OffbeatError, match="KeyError"):
            joined.result(30)


def test_a_client_that_stays_serves_a_run_that_is_extended(
    tmp_path: Path, join: Callable[..., int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("offbeat_client.client_run._STAY_SECONDS", 0.1)
    caplog.set_level("INFO", "offbeat_client")
    with hosting(tmp_path / "host", a={}, b={}) as host, ThreadPoolExecutor() as pool:
        joined = pool.submit(join, host, stay=True, visits=8)
        until(lambda: "the client stays" in caplog.text)
        assert admin.extend(host.runs["b"].folder, 5)["stop_versions"] == 5
        assert joined.result(30) == 8


def test_with_terms_a_client_joins_one_run(tmp_path: Path, join: Callable[..., int]) -> None:
    private_folder(tmp_path / "site")
    with hosting(tmp_path / "host", a={}) as host:
        message = f"^{host.url} has several runs: with --terms join {host.url}/runs/NAME, in another folder$"
        with pytest.raises(OffbeatError, match=message):
            join(host, terms=tmp_path / "terms.json")


def test_a_pending_update_goes_first(tmp_path: Path, join: Callable[..., int], wire: Wire) -> None:
    with hosting(tmp_path / "host", a={"stop_versions": 1}, b={"stop_versions": 1}) as host:
        wire.faults["/runs/a/v1/uploads/0"] = KilledError()
        with pytest.raises(KilledError):
            join(host)
        wire.faults.clear()
        wire.heard.clear()
        assert join(host) == 2
        assert [path for _, path in wire.heard][:3] == ["/runs/a/v1/uploads/0"] * 2 + ["/v1/work"]


@pytest.mark.parametrize(("problem", "remedy"), [("number", "is it a new run of an old name"), ("lost", "put it back")])
def test_the_folder_of_another_client_or_without_identity_is_one_line(
    tmp_path: Path, join: Callable[..., int], problem: str, remedy: str
) -> None:
    with hosting(tmp_path / "host", a={"stop_versions": 1}) as host:
        identity = tmp_path / "site" / "runs" / "a" / "identity.json"
        if problem == "number":
            join(host)
            identity.write_text(identity.read_text().replace('"client": 0', '"client": 1'))
            admin.extend(host.runs["a"].folder, 2)
        else:
            identity.parent.mkdir(parents=True)
            identity.with_name("upload.json").write_text("{}")
        with ThreadPoolExecutor() as pool:
            joined = pool.submit(join, host)
            until(lambda: host.questions and host.questions[-1].get("without") == ["a"])
            host.runs.clear()
            with pytest.raises(OffbeatError, match=remedy):
                joined.result(30)


@pytest.mark.parametrize(
    ("first", "options"),
    [(0, {"plan": TOP_K}), (6, {"make": lambda: SCAFFOLD(cohort=1)})],
)
def test_killed_anywhere_it_sends_the_same_in_all_runs(
    tmp_path: Path, join: Callable[..., int], kill_at: Callable[[float], None], first: int, options: dict[str, Any]
) -> None:
    """All over again, killed some steps later; a client trains once more for each kill at most."""

    def live(name: str, step: float) -> tuple[int, dict[str, list[float]], int]:
        trained: list[tuple[str, int]] = []

        def make_client(client: int, run: str) -> Fit:
            def train(model: Arrays, visit: Visit) -> Any:
                trained.append((run, visit.number))
                return fit(model, visit)

            train.corrects_gradients = True  # pyright: ignore[reportFunctionMemberAccess]
            return train

        with hosting(tmp_path / name, a=options, b={**options, "stop_versions": 2}) as host:
            site, kills = tmp_path / f"{name}-site", 0
            kill_at(step)
            while True:
                try:
                    run_client(host.url, make_client, site, enrolment_token="obe_1", backoff=Backoff(0.01, 0.02, 4))
                    break
                except KilledError:
                    kills += 1
                    kill_at(math.inf)
            return kills, models(host), len(trained)

    _, expected, trained = live("unkilled", math.inf)
    assert trained == 5
    for step in range(first, 1000, 13):
        kills, got, trained = live(str(step), step)
        assert got == expected, step
        assert trained <= 5 + kills
        if not kills:
            break
    assert step > 90
