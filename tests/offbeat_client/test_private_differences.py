"""Clients of algorithms with a memory: masked differences, and the numbers that a client remembers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from offbeat_client.client_run import run_client
from offbeat_client.visit import Fitted
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError
from safetensors.numpy import load_file

from tests.offbeat_client.conftest import Fault, model_of
from tests.offbeat_client.helper_facts import TERMS, Helper, private_folder
from tests.offbeat_client.private_lives import lives

DIFFERENCES = replace(TERMS, payload="difference", clip_norm=1.0)
PRIVACY = {"terms": DIFFERENCES.digest.hex()}


def delta_of(visit):
    return (np.cos(np.arange(6) * (visit + 1.3)) / (visit + 2)).astype(np.float32)


def fit(model, visit):
    delta = delta_of(visit.number)
    end = {"weight": model["weight"] - delta[:4].reshape(2, 2), "bias": model["bias"] - delta[4:]}
    return Fitted(end, examples=31337, steps=2)


@pytest.fixture
def helper(server):
    made = Helper(terms=DIFFERENCES)
    made.version = 1000
    server.share = made.facts
    return made


@pytest.fixture
def offer(server, model):
    """Return a function that has the server offer a visit of a later version, with the update that it counts on."""

    def call(number, since):
        server.serve(10 + number, model_of(10 + number, model))
        server.offer(number, 10 + number, payload="difference", since=since, privacy=PRIVACY)

    return call


@pytest.fixture
def run(server, tmp_path, quick):
    folder = private_folder(tmp_path / "me", DIFFERENCES)

    def call(client=fit, **options):
        values = {"enrolment_token": "obe_1", "backoff": quick, "terms": tmp_path / "terms.json"}
        return run_client(server.url, lambda _: client, folder, **values | options)

    return call


def sent(server, helper, visit):
    return np.array(helper.open(server.announced[visit], server.bodies[visit])[1])


def check_is_update(numbers, visit):
    """Check that whole numbers stand for a visit's own update."""
    assert (
        np.abs(numbers * DIFFERENCES.step - delta_of(visit)).max() < 1.1 * DIFFERENCES.step
    )  # and float32 of the model


def test_differences_add_up_to_the_latest_update(server, helper, run, offer):
    total = np.zeros(6, int)
    for visit in range(4):
        offer(visit, 9 + visit if visit else None)
        assert run() == 1
        assert server.announced[visit]["since"] == (9 + visit if visit else None)
        total += sent(server, helper, visit)
        check_is_update(total, visit)


def test_after_a_sum_that_was_not_opened_the_difference_is_to_the_update_before(server, helper, run, offer):
    offer(0, None)
    offer(1, 10)
    offer(2, 10)  # the server has opened no sum with visit 1
    offer(3, 12)
    assert run() == 4
    assert [server.announced[visit]["since"] for visit in range(4)] == [None, 10, 10, 12]
    first = sent(server, helper, 0)
    check_is_update(first + sent(server, helper, 1), 1)
    check_is_update(first + sent(server, helper, 2), 2)
    check_is_update(first + sent(server, helper, 2) + sent(server, helper, 3), 3)


def test_after_the_first_sum_was_not_opened_the_whole_update_is_sent(server, helper, run, offer):
    offer(0, None)
    offer(1, None)
    assert run() == 2
    check_is_update(sent(server, helper, 1), 1)


def test_an_update_that_did_not_count_is_not_remembered(server, helper, run, offer):
    server.counts = lambda visit: visit != 1
    offer(0, None)
    offer(1, 10)
    offer(2, 10)
    assert run() == 2
    check_is_update(sent(server, helper, 0) + sent(server, helper, 2), 2)


def test_a_lost_memory_is_announced_and_ends_the_client(server, helper, run, offer, tmp_path):
    offer(0, None)
    run()
    (memory,) = (tmp_path / "me").glob("memory-*")
    memory.unlink()
    offer(1, 10)
    server.faults["PUT", "/v1/uploads/1"] = [Fault(422, "lost-memory")]
    with pytest.raises(OffbeatError, match="has lost what the client remembers"):
        run()
    announced = server.put[-1][1]
    assert announced["since"] is None


def test_a_share_that_is_made_again_is_what_is_remembered(server, helper, run, offer, tmp_path):
    offer(0, None)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(503)] * 4
    with pytest.raises(ServiceError):
        run()
    helper.epoch, helper.head_number = 1, 101
    server.faults["PUT", "/v1/uploads/0"] = [Fault(409, "stale-share")]
    assert run(lambda *_: pytest.fail("trained again")) == 1
    (memory,) = (tmp_path / "me").glob("memory-*")
    assert load_file(memory)["memory"].tolist() == sent(server, helper, 0).tolist()


@pytest.mark.parametrize("values", [{"payload": "delta"}, {"payload": "params"}])
def test_terms_for_differences_are_for_nothing_else(server, helper, run, offer, values):
    offer(0, None)
    server.visits[0] |= values
    with pytest.raises(OffbeatError, match=r"or for compression, but the terms are for a difference"):
        run(lambda *_: pytest.fail("trained"))
    assert server.paths("PUT") == []


def test_killed_anywhere_a_client_remembers_what_the_server_has_counted(
    server, helper, tmp_path, quick, offer, kill_at
):
    """Three visits, of which the third is to the first."""

    def begin():
        for visit, since in ((0, None), (1, 10), (2, 10)):
            offer(visit, since)

    each = lives(
        server, helper, kill_at, tmp_path, terms=DIFFERENCES, offer=begin, make_client=lambda: fit, backoff=quick
    )
    for _, _, folder in each:
        assert sorted(server.receipts) == [0, 1, 2]
        numbers = [sent(server, helper, visit) for visit in range(3)]
        check_is_update(numbers[0], 0)
        check_is_update(numbers[0] + numbers[1], 1)
        check_is_update(numbers[0] + numbers[2], 2)
        kept = json.loads((folder / "kept.json").read_text())
        memories = [load_file(folder / kept[name])["memory"].tolist() for name in ("memory", "earlier_memory")]
        assert memories == [(numbers[0] + numbers[2]).tolist(), numbers[0].tolist()], folder
        assert (kept["since"], kept["earlier_since"]) == (12, 10)
        assert len(list(folder.glob("memory-*"))) == 2
