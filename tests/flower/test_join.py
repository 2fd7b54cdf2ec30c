"""Apps as clients of a real server."""

from functools import partial

import torch
from flwr.app import ConfigRecord
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Backoff

from offbeat.client import run_client
from offbeat.flower.client_app import AppState, FlowerApp, FlowerClient
from tests.flower.apps import app_of, minus_lr, reply
from tests.service.conftest import running


def join(server, folder, train, visits):
    app = FlowerApp(app_of(train), run_config={}, node_config={})
    token, quick = server.enrolment_token, Backoff(first_seconds=0.01, largest_seconds=0.02)
    make = lambda _: FlowerClient(app)  # noqa: E731
    return run_client(server.url, make, folder, enrolment_token=token, visits=visits, backoff=quick)


def test_an_app_takes_part_and_its_context_survives_a_restart(tmp_path):
    with running(tmp_path / "server", clients=1) as server:
        assert join(server, tmp_path / "client", minus_lr, 3) == 3
        assert join(server, tmp_path / "client", minus_lr, 1) == 1
        status = server.admin.http.get("/v1/status").json()
        assert (status["version"], status["counted"]) == (2, 4)
    state = AppState.from_bytes(Outbox(tmp_path / "client").state())
    assert state.records["count"]["trainings"] == 4


def test_an_app_that_raises_gives_up_its_visit_and_keeps_its_context(tmp_path):
    seen = []

    def train(message, context):
        seen.append(context.state["calls"]["number"] if "calls" in context.state else 0)
        context.state["calls"] = ConfigRecord({"number": seen[-1] + 1})
        if len(seen) == 2:
            raise ZeroDivisionError("mine")
        return reply(message, message.content["arrays"])

    with running(tmp_path / "server", clients=1) as server:
        assert join(server, tmp_path / "client", train, 2) == 2
        status = server.admin.http.get("/v1/status").json()
        assert (status["counted"], status["lost"]) == (2, 1)
    assert seen == [0, 1, 1]


def test_the_context_of_an_update_that_did_not_count_is_forgotten(tmp_path):
    seen = []

    def train(server, message, context):
        seen.append(context.state["calls"]["number"] if "calls" in context.state else 0)
        context.state["calls"] = ConfigRecord({"number": seen[-1] + 1})
        if len(seen) == 2:  # another client's updates make this one too stale
            other = server.enrol()
            for _ in range(4):
                visit = other.check_in()
                other.send(visit, torch.zeros(6))
        return reply(message, message.content["arrays"])

    with running(tmp_path / "server", clients=2, max_staleness=0) as server:
        assert join(server, tmp_path / "client", partial(train, server), 3) == 2
    assert seen == [0, 1, 1]
