"""A client of a real server of several runs."""

import itertools
import math
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
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
from offbeat_core.http.service_errors import ServiceError, UnreachableError

from tests.offbeat_client.conftest import KilledError
from tests.offbeat_client.helper_facts import private_folder
from tests.service.hosting.conftest import Host, hosting
from tests.service.http_client import until

Arrays = dict[str, Any]
Join = Callable[..., int]


def fit(model: Arrays, visit: Visit) -> tuple[Arrays, int]:
    """Return what depends on model, offset and visit."""
    change = np.sin(np.arange(6, dtype=np.float32) * (visit.number + 1.3))
    if visit.offset is not None:
        change += np.concatenate([array.reshape(-1) for array in visit.offset.values()]) / 9
    return {"weight": 0.9 * model["weight"] - change[:4].reshape(2, 2), "bias": model["bias"] - change[4:]}, 3


fit.corrects_gradients = True  # pyright: ignore[reportFunctionMemberAccess]


@pytest.fixture
def host(tmp_path: Path) -> Generator[Host]:
    with hosting(tmp_path / "host", token_seconds=1e6) as running:
        yield running


@pytest.fixture
def runs(host: Host) -> Callable[..., None]:
    """Return a function that creates runs, of three versions for one client unless their settings differ."""

    def create(**runs: dict[str, Any]) -> None:
        for name, settings in runs.items():
            host.create(name, **{"algorithm": "one at a time", "clients": 1, "versions": 3, **settings})

    return create


@pytest.fixture
def join(host: Host, tmp_path: Path, quick: Backoff) -> Join:
    """Return a function that runs a client in the folder ``site``."""
    token = host.token("enrolment")

    def call(make_client: Callable[..., Any] = lambda client: fit, url: str = host.url, **options: Any) -> int:
        options = {"folder": tmp_path / "site", "enrolment_token": token, "backoff": quick, **options}
        return run_client(url, make_client, **options)

    return call


class Wire:
    """The requests that the client sends, and the errors that it gets in place of answers, by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[tuple[str, str]] = []
        self.supports: dict[str, str] = {}
        self.without: list[str] = []  # of the last question where there is work
        self.faults: dict[str, BaseException] = {}
        real = Connection.send

        def send(connection: Connection, method: str, rest: str, **options: Any) -> Any:
            path = urlsplit(connection.url + rest).path
            self.heard.append((method, path))
            self.supports[path] = connection.supports
            if path == "/v1/work":
                self.without = list(options["json"].get("without", []))
            if path in self.faults:
                raise self.faults[path]
            return real(connection, method, rest, **options)

        monkeypatch.setattr(Connection, "send", send)

    @property
    def runs(self) -> list[str]:
        """The runs in which the client has checked in."""
        return [path.split("/")[2] for _, path in self.heard if path.endswith("/v1/checkin")]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def end(host: Host, run: str) -> None:
    assert host.peer(host.admin.token, run).http.post("/v1/admin/end").json()["finished"]


def test_a_client_takes_turns_in_its_runs_until_all_are_over(
    tmp_path: Path, host: Host, runs: Callable[..., None], join: Join, wire: Wire
) -> None:
    made: list[tuple[int, str]] = []

    def make_client(client: int, run: str) -> Fit:
        made.append((client, run))
        return fit

    runs(a={}, b={"versions": 2})
    assert join(make_client) == 5
    assert wire.runs == ["a", "b", "a", "b", "a"]
    assert [(run["state"], run["version"]) for run in host.runs().values()] == [("over", 3), ("over", 2)]
    assert sorted(made) == [(0, "a"), (0, "b")]
    for run in host.service.runs.at_work():
        home = tmp_path / "site" / "runs" / run.name
        identity = read_json(home / "identity.json", dict)
        assert identity is not None
        assert (identity["server"], identity["client"]) == (f"{host.url}/runs/{run.name}", 0)
        assert (home / "audit-heads").read_text().splitlines()[-1] == str(run.accounts.audit.head)
    assert not (tmp_path / "site" / "kept.json").exists()


def test_visits_count_over_all_runs_and_the_next_process_resumes(
    runs: Callable[..., None], join: Join, wire: Wire
) -> None:
    runs(a={}, b={})
    assert join(visits=3) == 3
    assert join(enrolment_token=None) == 3
    assert sorted(wire.runs) == ["a"] * 3 + ["b"] * 3
    assert wire.heard.count(("POST", "/v1/enrol")) == 1


def test_with_a_runs_own_token_a_client_joins_that_run_alone(
    host: Host, runs: Callable[..., None], join: Join, wire: Wire
) -> None:
    runs(a={}, b={})
    answer = host.peer(host.admin.token, "a").http.post("/v1/tokens", json={"kind": "enrolment"})
    assert join(url=f"{host.url}/runs/a", enrolment_token=answer.json()["token"]) == 3
    assert {path.split("/")[2] for _, path in wire.heard} == {"a"}


def breaks(model: Arrays, visit: Visit) -> None:
    raise KeyError("readings")


@pytest.mark.parametrize(
    ("make_client", "settings", "problem"),
    [
        (lambda client, run: breaks if run == "b" else fit, {}, "visit 0: the client's fit failed: KeyError"),
        (lambda client, run: {"a": fit}[run], {}, "making the client failed: KeyError: 'b'"),
        (lambda client: lambda *visit: fit(*visit), {"algorithm": "scaffold"}, "corrects_gradients = True"),
    ],
)
def test_a_run_that_fails_leaves_the_others(
    host: Host,
    runs: Callable[..., None],
    join: Join,
    wire: Wire,
    caplog: pytest.LogCaptureFixture,
    make_client: Any,
    settings: dict[str, Any],
    problem: str,
) -> None:
    runs(a={"versions": 5}, b=settings)
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(join, make_client)
        until(lambda: host.runs()["a"]["state"] == "over")
        until(lambda: wire.without == ["b"])
        assert wire.runs.count("b") == 1
        assert host.runs()["b"]["at_work"] == 0
        assert not joined.done()  # there may be other runs
        end(host, "b")
        with pytest.raises(OffbeatError) as raised:
            joined.result(30)
    assert f"the client has failed in {host.url}/runs/b: " in str(raised.value)
    assert problem in str(raised.value)
    assert sum(problem in message for message in caplog.messages) == 1


def test_a_run_that_does_not_answer_leaves_the_others_for_some_time(
    host: Host,
    runs: Callable[..., None],
    join: Join,
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("offbeat_client.server_runs._RETRY_SECONDS", 0.2)
    monkeypatch.setattr("offbeat_client.server_runs.WAIT_SECONDS", 0.2)
    trained: list[Visit] = []

    def train(model: Arrays, visit: Visit) -> Any:
        trained.append(visit)
        return fit(model, visit)

    runs(a={}, b={})
    wire.faults["/runs/a/v1/uploads/0"] = ServiceError("PUT", 503, "stopping", "run a has failed")
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(join, lambda client: train)
        until(lambda: host.runs()["b"]["state"] == "over")
        until(lambda: caplog.text.count("the client asks there again in 0.2 seconds") > 1)
        until(lambda: wire.without == ["a"])
        wire.faults.clear()
        assert joined.result(30) == 6
    assert len(trained) == 6


def test_a_client_is_made_once_however_its_first_requests_fail(
    runs: Callable[..., None], join: Join, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offbeat_client.server_runs._RETRY_SECONDS", 0.1)
    made: list[str] = []

    def make_client(client: int, run: str) -> Any:
        made.append(run)
        return SimpleNamespace(fit=fit, examples=3)

    path = "/runs/a/v1/examples"
    wire.faults[path] = ServiceError("POST", 503, "busy", "busy")
    runs(a={})
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(join, make_client)
        until(lambda: wire.heard.count(("POST", path)) > 3)
        wire.faults.clear()
        assert joined.result(30) == 3
    assert made == ["a"]


def test_an_unreachable_server_is_asked_as_often_as_the_backoff_says(
    runs: Callable[..., None], join: Join, wire: Wire
) -> None:
    runs(a={}, b={})
    refused = UnreachableError("connection refused")
    wire.faults["/runs/a/v1/uploads/0"] = refused
    with pytest.raises(UnreachableError):
        join(lambda client: lambda *visit: wire.faults.update({"/v1/work": refused}) or fit(*visit))
    assert [path for _, path in wire.heard][-5:] == ["/runs/a/v1/uploads/0"] + ["/v1/work"] * 4
    del wire.faults["/v1/work"]
    del wire.faults["/runs/a/v1/uploads/0"]
    assert join() == 6


def test_after_an_outage_the_update_goes_on_at_once(runs: Callable[..., None], join: Join, wire: Wire) -> None:
    def make_client(client: int, run: str) -> Fit:
        def train(model: Arrays, visit: Visit) -> Any:
            if run == "b":
                wire.faults.clear()
            return fit(model, visit)

        return train

    runs(a={}, b={})
    wire.faults["/runs/a/v1/uploads/0"] = UnreachableError("connection refused")
    assert join(make_client, visits=2) == 2
    assert wire.runs == ["a", "b"]


def test_a_site_that_is_revoked_ends(host: Host, runs: Callable[..., None], join: Join) -> None:
    runs(a={})
    join(visits=1)
    assert host.admin.http.delete("/v1/sites/0").status_code == 204
    with pytest.raises(OffbeatError, match=r"POST /v1/work: .*revoked-token"):
        join()


def test_tokens_are_renewed_at_the_root_and_used_in_all_runs(
    runs: Callable[..., None], join: Join, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 1_000_000)  # each look at it is a token's life later
    monkeypatch.setattr("offbeat_client.http.enrolment.time", SimpleNamespace(time=lambda: next(clock)))
    runs(a={}, b={})
    assert join() == 6
    renewals = [path for _, path in wire.heard if path.endswith("/v1/token")]
    assert len(renewals) >= 6
    assert set(renewals) == {"/v1/token"}


def test_the_server_learns_what_the_clients_of_the_runs_support(
    runs: Callable[..., None], join: Join, wire: Wire
) -> None:
    def make_client(client: int, run: str) -> Any:
        return fit if run == "b" else SimpleNamespace(fit=fit, evaluate=lambda model: ({"loss": 0.0}, 1))

    runs(a={}, b={})
    join(make_client)
    assert wire.supports["/runs/a/v1/checkin"] == "needs_loss, evaluate"
    assert wire.supports["/runs/b/v1/checkin"] == "needs_loss, corrects_gradients, keeps_regulariser"
    assert wire.supports["/v1/work"] == "needs_loss, evaluate, corrects_gradients, keeps_regulariser"


def test_a_client_that_stays_serves_a_run_that_is_extended(
    host: Host, runs: Callable[..., None], join: Join, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("offbeat_client.client_run._STAY_SECONDS", 0.1)
    caplog.set_level("INFO", "offbeat_client")
    runs(a={}, b={})
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(join, stay=True, visits=9)
        until(lambda: "the client stays" in caplog.text)
        runs(c={"versions": 1})
        host.peer(host.admin.token, "b").http.post("/v1/admin/extend", json={"versions": 5})
        assert joined.result(30) == 9


def test_with_terms_a_client_joins_one_run(tmp_path: Path, host: Host, join: Join) -> None:
    private_folder(tmp_path / "site")
    message = f"^{host.url} has several runs: with --terms join {host.url}/runs/NAME, in another folder$"
    with pytest.raises(OffbeatError, match=message):
        join(terms=tmp_path / "terms.json")


def test_a_pending_update_goes_first(runs: Callable[..., None], join: Join, wire: Wire) -> None:
    runs(a={"versions": 1}, b={"versions": 1})
    wire.faults["/runs/a/v1/uploads/0"] = KilledError()
    with pytest.raises(KilledError):
        join()
    wire.faults.clear()
    wire.heard.clear()
    assert join() == 2
    assert [path for _, path in wire.heard][:3] == ["/runs/a/v1/uploads/0"] * 2 + ["/v1/work"]


@pytest.mark.parametrize(("problem", "remedy"), [("number", "is it a new run of an old name"), ("lost", "put it back")])
def test_the_folder_of_another_client_or_without_identity_is_one_line(
    tmp_path: Path, host: Host, runs: Callable[..., None], join: Join, wire: Wire, problem: str, remedy: str
) -> None:
    runs(a={})
    identity = tmp_path / "site" / "runs" / "a" / "identity.json"
    join(visits=1)
    if problem == "number":
        identity.write_text(identity.read_text().replace('"client": 0', '"client": 1'))
    else:
        identity.unlink()
        identity.with_name("upload.json").write_text("{}")
    with ThreadPoolExecutor() as pool:
        joined = pool.submit(join)
        until(lambda: wire.without == ["a"])
        end(host, "a")
        with pytest.raises(OffbeatError, match=remedy):
            joined.result(30)


@pytest.mark.parametrize(("first", "settings"), [(0, {"is_compressed": True}), (5, {"algorithm": "scaffold"})])
def test_killed_anywhere_it_sends_the_same_in_all_runs(
    tmp_path: Path,
    host: Host,
    runs: Callable[..., None],
    join: Join,
    kill_at: Callable[[float], None],
    first: int,
    settings: dict[str, Any],
) -> None:
    """All over again, killed some steps later; a client trains once more for each kill at most."""

    def live(site: str, step: float) -> tuple[int, list[Any], int]:
        trained: list[tuple[str, int]] = []

        def make_client(client: int, run: str) -> Fit:
            def train(model: Arrays, visit: Visit) -> Any:
                trained.append((run, visit.number))
                return fit(model, visit)

            train.corrects_gradients = True  # pyright: ignore[reportFunctionMemberAccess]
            return train

        names = {f"a-{site}": 3, f"b-{site}": 2}
        runs(**{name: {**settings, "versions": versions, "names": [site]} for name, versions in names.items()})
        kills = 0
        kill_at(step)
        while True:
            try:
                join(make_client, folder=tmp_path / site, name=site)
                break
            except KilledError:
                kills += 1
                kill_at(math.inf)
        done = [run.service.service for run in host.service.runs.at_work() if run.name in names]
        models = [service.engine.coordinator.algorithm.model.tolist() for service in done]
        return kills, models, len(trained)

    _, expected, trained = live("unkilled", math.inf)
    assert trained == 5
    for step in range(first, 1000, 11):
        kills, got, trained = live(f"at-{step}", step)
        assert got == expected, step
        assert trained <= 5 + kills
        if not kills:
            break
    assert step > 90
