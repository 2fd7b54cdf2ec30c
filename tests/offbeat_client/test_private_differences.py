"""Clients of algorithms with a memory: masked differences, and the numbers that a client remembers."""

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
    """Check that whole numbers stand for a visit's own update; the rest is the rounding, and float32 of the model."""
    assert np.abs(numbers * DIFFERENCES.step - delta_of(visit)).max() < 1.1 * DIFFERENCES.step


def test_differences_add_up_to_the_latest_update(server, helper, run, offer):
    total = np.zeros(6, int)
    for visit in range(4):
        offer(visit, 9 + visit if visit else None)
        assert run() == 1
        assert server.announced[visit]["since"] == (9 + visit if visit else None)
        total += sent(server, helper, visit)
        check_is_update(total, visit)


def test_after_a_sum_that_was_not_opened_the_difference_is_to_the_update_before(server, helper, run, offer):
    sinces = [None, None, 11, 11, 13]  # the server has opened no sum with visit 0, and none with visit 2
    for visit, since in enumerate(sinces):
        offer(visit, since)
    assert run() == 5
    assert [server.announced[visit]["since"] for visit in range(5)] == sinces
    _, first, second, third, last = (sent(server, helper, visit) for visit in range(5))
    check_is_update(first, 1)
    check_is_update(first + second, 2)
    check_is_update(first + third, 3)
    check_is_update(first + third + last, 4)


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


def test_terms_for_differences_are_for_nothing_else(server, helper, run, offer):
    offer(0, None)
    server.visits[0] |= {"payload": "delta"}
    with pytest.raises(OffbeatError, match=r"or for compression, but the terms are for a difference"):
        run(lambda *_: pytest.fail("trained"))
    assert server.paths("PUT") == []
