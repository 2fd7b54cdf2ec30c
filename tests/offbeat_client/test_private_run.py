"""Clients with terms: whatever happens, only shares leave them."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_client.client_folder.private_record import read_models
from offbeat_client.client_run import run_client
from offbeat_client.visit import Fitted
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import ServiceError
from offbeat_core.local_plan import Compression
from offbeat_core.model_file import model_digest
from offbeat_private.masks.signing_key import signing_key

from tests.offbeat_client.conftest import PLAN, Fault, model_of
from tests.offbeat_client.helper_facts import PRIVACY, TERMS, Helper, private_folder

KEYS = {"version", "bytes", "sha256", "since", "salt", "share"}


# So many digits that salts and hashes in hex do not hold them by chance, as they did five digits in one run of ten.
EXAMPLES = 313371234


def delta_of(visit):
    return np.sin(np.arange(6, dtype=np.float32) * (visit + 1.3) + 1).astype(np.float32)


def fit(model, visit):
    delta = delta_of(visit.number)
    end = {"weight": model["weight"] - delta[:4].reshape(2, 2), "bias": model["bias"] - delta[4:]}
    return Fitted(end, examples=EXAMPLES, steps=2, loss=0.123456789)


class Client:
    """A client with examples, which it tells nobody."""

    examples = EXAMPLES

    def __init__(self):
        self.trained = []

    def fit(self, model, visit):
        self.trained.append(visit.number)
        return fit(model, visit)


@pytest.fixture
def helper(server):
    made = Helper()
    server.share = made.facts
    return made


@pytest.fixture
def offer(server, model):
    """Return a function that has the server offer private visits, each of a later version."""

    def call(*numbers, **values):
        for number in numbers:
            server.serve(10 + number, model_of(10 + number, model))
            server.offer(number, 10 + number, **{"privacy": PRIVACY} | values)

    return call


@pytest.fixture
def run(server, tmp_path, quick):
    folder = private_folder(tmp_path / "me")

    def call(client=fit, folder=folder, **options):
        values = {"enrolment_token": "obe_1", "backoff": quick, "terms": tmp_path / "terms.json"}
        return run_client(server.url, lambda _: client, folder, **values | options)

    return call


def never(*_):
    pytest.fail("trained, or trained again")


@pytest.fixture
def refuses(server, run):
    """Return a function that checks that a client refuses to go on, and sends nothing."""

    def call(message, client=never, *, gives_up=True, **options):
        sent = len(server.put)
        with pytest.raises(OffbeatError, match=message):
            run(client, **options)
        assert len(server.put) == sent
        assert not gives_up or server.paths("POST")[-1].endswith("/give-up")

    return call


@pytest.fixture
def other_terms(server, tmp_path):
    """Return a function that makes the helper of a run with other terms, and the folder of a client of it."""

    def call(**changes):
        terms = replace(TERMS, **changes)
        helper = Helper(terms=terms)
        server.share = helper.facts
        return helper, terms.digest.hex(), private_folder(tmp_path / "other", terms)

    return call


def check_received(server, deltas, model):
    """Check every byte that the server got: neither deltas nor trained parameters, and nothing about the data."""
    for visit, delta in enumerate(deltas):
        start = np.concatenate([array.reshape(-1) for array in model_of(10 + visit, model).values()])
        for vector in (delta, start - delta, -delta):
            words = vector.astype("<f4").tobytes()
            for begin in range(0, len(words) - 4, 4):
                assert words[begin : begin + 8] not in server.received
    for text in (str(EXAMPLES).encode(), b"123456789", b"examples", b"steps", b"normaliser", b'seconds": 0', b'loss"'):
        assert text not in server.received
    assert {method + path for method, path, _ in server.heard if "probe" in path or "examples" in path} == set()
    for _, announced, body in server.put:
        assert announced.keys() == KEYS
        assert announced["since"] is None
        assert len(body) <= 24


def test_a_private_life(server, helper, run, offer, model, tmp_path):
    helper.epoch, helper.head_number, helper.scale = 1, 103, 0.5
    offer(0, 1)
    server.probe = {"probe": None, "upload_bytes": 100}
    client = Client()
    assert run(client) == 2
    assert client.trained == [0, 1]
    check_received(server, [delta_of(0), delta_of(1)], model)
    key = signing_key(tmp_path / "me" / "signing-key").public_key().public_bytes_raw()
    for visit in (0, 1):
        digest = model_digest(model_of(10 + visit, model))
        binding, quantised = helper.open(server.announced[visit], server.bodies[visit])
        assert (binding.terms, binding.run, binding.client) == (TERMS.digest, TERMS.run, key)
        assert (binding.visit, binding.start_version, binding.version) == (visit, 10 + visit, 14)
        assert (binding.model, binding.head_number, binding.epoch) == (digest, 103, 1)
        assert server.announced[visit]["version"] == 10 + visit
        assert np.abs(np.array(quantised) * TERMS.step - 0.5 * delta_of(visit)).max() < 1.001 * TERMS.step
    supports = {headers["Offbeat-Supports"] for _, path, headers in server.heard if "/models/" not in path}
    assert "/v1/enrol" in {path for _, path, _ in server.heard}
    assert supports == {"privacy"}


def test_the_divisor_is_that_of_the_terms_whatever_the_server_says(server, run, offer, other_terms):
    helper, digest, folder = other_terms(normalise=True)
    offer(0, privacy={"terms": digest, "divisor": 1e30})
    run(folder=folder)
    _, quantised = helper.open(server.announced[0], server.bodies[0])
    # Three steps of plain SGD. Divided by 10³⁰ the updates of others would be zeros.
    assert np.abs(np.array(quantised) * TERMS.step - delta_of(0) / 3).max() < 1.001 * TERMS.step


@pytest.mark.parametrize("change", [0.0, np.inf, np.nan])
def test_an_update_that_hides_no_other_one_is_not_sent_behind_masks_alone(helper, refuses, offer, change):
    """Updates of a model with dead neurons, or of one from which training diverges."""
    offer(0)

    def constant(model, visit):
        return {name: array + np.float32(change) for name, array in model.items()}, 1

    refuses("visit 0: the update is zero or not finite", constant)


def test_with_noise_an_update_that_is_not_finite_is_sent_as_zeros(server, run, offer, other_terms):
    """Participation must not depend on the client's data."""
    helper, digest, folder = other_terms(noise_multiplier=1.0)
    offer(0, privacy={"terms": digest})
    run(lambda model, visit: ({name: array + np.inf for name, array in model.items()}, 1), folder)
    assert helper.open(server.announced[0], server.bodies[0])[1] == [0] * 6


def hurried(model, visit):
    assert visit.number or visit.urgent.wait(30)
    return fit(model, visit)


def test_an_update_that_a_heartbeat_hurries_is_not_sent(server, helper, refuses, offer):
    offer(0, lease_seconds=0.3)
    server.beat = {"wanted": True, "lease_seconds": 0.3, "urgent": True}
    refuses("asks for an update before its last step", hurried)


def test_an_update_that_is_no_longer_wanted_is_given_up_and_the_client_goes_on(server, helper, run, offer):
    offer(0, lease_seconds=0.3)
    offer(1)
    server.beat = {"wanted": False, "lease_seconds": 0.3, "urgent": True}
    assert run(hurried) == 1
    assert [visit for visit, _, _ in server.put] == [1]


def test_the_seed_of_a_run_stays(helper, run, refuses, offer):
    """Another one could let a client draw the same examples again."""
    offer(0)
    run()
    offer(1, seed=6)
    refuses("the server's seed was 5 and is now 6")
    offer(2)
    assert run() == 1


def test_a_model_with_a_number_that_is_not_finite_is_refused(server, helper, refuses, offer, model):
    offer(0)
    server.serve(10, model | {"bias": np.array([5, -np.inf], np.float32)})
    refuses("bias of the server's version 10 is not finite")


def test_a_model_is_trained_from_once_whatever_its_version_and_order(server, helper, run, refuses, offer, model):
    offer(0, 1)
    run()
    for again in (model_of(10, model), dict(reversed(model_of(11, model).items()))):
        server.offer(7, 17, privacy=PRIVACY)
        server.serve(17, again)
        refuses(r"sends the model of version 1[01] again, as version 17")
        server.open = None


def test_the_models_that_shares_were_made_from_are_kept(server, helper, run, refuses, offer, model, tmp_path):
    offer(0, 1)
    run()
    (path,) = (tmp_path / "me").glob("models-*.txt")
    digests = {version: model_digest(model_of(version, model)).hex() for version in (10, 11)}
    assert read_models(path) == (TERMS.digest.hex(), digests)
    path.unlink()
    heard = len(server.heard)
    refuses(r"has lost models-.*txt or lines of it: put it back, or have a new key", gives_up=False)
    assert len(server.heard) == heard


def test_losses_of_a_model_are_never_sent(server, helper, refuses, offer):
    client = Client()
    client.evaluate = never
    server.evaluations = [{"version": 10, "length": 6}]
    refuses("asks for losses and metrics, which a client with terms never sends", client, gives_up=False)
    assert [path for path in server.paths("POST") if "evaluations" in path] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"privacy": None}, "which a client with terms never sends"),
        (
            {"privacy": {"terms": "0a" * 32}},
            f"terms 0a0a0a0a0a0a0a0a…, this client has {TERMS.digest.hex()[:16]}…: ask",
        ),
        ({"length": 7}, "model has 7 parameters, the terms are for 6"),
        ({"payload": "difference"}, "asks for a difference or for compression, but the terms are for a delta"),
        ({"plan": replace(PLAN, lr=1e-30)}, "plan is not the one in the terms: lr is 1e-30"),
        ({"plan": replace(PLAN, compression=Compression("sign"))}, "or for compression, but the terms are for"),
        ({"urgent": True}, "asks for an update before its last step, which masks do not hide"),
        ({"needs_loss": True}, "asks for losses"),
        ({"corrects_gradients": True}, "corrects gradients"),
    ],
)
def test_visits_that_do_not_go_with_masks_are_refused(helper, refuses, offer, values, message):
    offer(0, **values)
    refuses(message)


FORGED = Helper(Ed25519PrivateKey.from_private_bytes(b"o" * 32)).facts()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.124}, r"scale must be in 0\.125 … 1, got 0\.124"),
        ({"scale": 1.001}, r"scale must be in 0\.125 … 1, got 1\.001"),
        ({"version": 9}, "version 9 of the share is older than start_version 10"),
        ({"epoch": FORGED["epoch"]}, "the epoch key was not signed by the helper of the terms"),
        ({"head": FORGED["head"]}, "the head was not signed by the helper of the terms"),
    ],
)
def test_facts_that_are_not_the_helpers_or_out_of_range_make_no_share(
    server, helper, run, refuses, offer, changes, message
):
    offer(0)
    facts = helper.facts()
    server.share = lambda _: facts | changes
    for client in (fit, never):
        refuses(message, client, gives_up=False)
    server.share = helper.facts
    assert run(never) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_number": 4}, r"has seen head 5 \(.*restored from an old copy"),
        ({"chain": b"fork"}, r"has seen head 5 \(.*restored from an old copy"),
        # An old epoch's key may have been stolen.
        ({"epoch": 1}, "the helper's key of epoch 1, but this client has seen that of epoch 2.*restored"),
    ],
)
def test_a_head_or_an_epoch_that_goes_back_stops_the_client(server, helper, run, refuses, offer, changes, message):
    helper.head_number, helper.epoch = 5, 2
    offer(0)
    run()
    offer(1)
    vars(helper).update(changes)
    refuses(message, fit, gives_up=False)
    helper.chain, helper.head_number, helper.epoch = b"chain", 6, 3
    assert run(never) == 1


def test_a_server_without_the_helpers_facts_is_asked_again(server, helper, run, offer):
    offer(0)
    answers = [None, None, helper.facts()]
    server.share = lambda _: answers.pop(0)
    assert run() == 1
    assert len(server.put) == 1


def test_visits_rise(server, helper, run, refuses, offer, model):
    offer(3)
    run()
    server.receipts.clear()
    for number in (3, 2):
        server.serve(20, model)
        server.offer(number, 20, privacy=PRIVACY)
        refuses(f"gives visit {number} after visit 3: it was restored")


def test_a_version_is_trained_from_once(server, helper, run, offer, model):
    """The visit is given up: there may be a later version soon."""
    offer(3)
    run()
    for number, version in ((4, 13), (5, 12), (6, 14)):
        server.serve(version, model_of(version, model))
        server.offer(number, version, privacy=PRIVACY)
    client = Client()
    assert run(client) == 1
    assert client.trained == [6]
    assert [visit for visit, _, _ in server.put] == [3, 6]
    give_ups = [path for path in server.paths("POST") if "give-up" in path]
    assert give_ups == ["/v1/visits/4/give-up", "/v1/visits/5/give-up"]


def test_a_share_is_sent_again_unchanged_until_it_is_stale(server, helper, run, offer):
    offer(0)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(503)] * 4
    with pytest.raises(ServiceError):
        run()
    helper.epoch, helper.head_number, helper.version = 1, 101, 15
    server.faults["PUT", "/v1/uploads/0"] = [Fault(before_answer=False, status=500), Fault(409, "stale-share")]
    assert run(never) == 1
    shares = [announced["share"] for _, announced, _ in server.put]
    assert shares == [shares[0]] * 6 + [shares[-1]]
    (old, body), (new, new_body) = [(announced, body) for _, announced, body in (server.put[0], server.put[-1])]
    assert body != new_body
    (old_binding, _), (binding, _) = helper.open(old, body), helper.open(new, new_body)
    assert (old_binding.epoch, old_binding.head_number, old_binding.version) == (0, 0, 14)
    assert (binding.epoch, binding.head_number, binding.version) == (1, 101, 15)
    assert (binding.visit, binding.start_version) == (old_binding.visit, old_binding.start_version)


def test_the_rest_of_a_stale_body_at_the_server_does_no_harm(server, helper, run, offer):
    """The server may keep the beginning of the first share's body, and take the second's for its end."""
    offer(0)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(body_bytes=9), Fault(409, "stale-share"), *[Fault(503)] * 4]
    server.faults["GET", "/v1/uploads/0"] = [Fault()] * 3 + [Fault(503)] * 9
    with pytest.raises(ServiceError, match="503"):
        run()
    assert server.bodies[0] == server.put[0][2][:9]
    server.faults.clear()
    assert run(never) == 1
    announced = server.announced[0]
    assert announced == server.put[-1][1] != server.put[0][1]
    assert helper.open(announced, server.bodies[0])[0].visit == 0


def test_a_server_that_finds_every_share_stale_ends_the_attempts(server, helper, run, offer):
    offer(0)
    server.is_stale = lambda _: True
    with pytest.raises(ServiceError, match="stale-share"):
        run()
    assert len(server.put) == 4


def test_a_plain_update_from_before_the_terms_is_dropped(server, helper, run, offer):
    offer(0, privacy=None)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(503)] * 4
    with pytest.raises(ServiceError):
        run(terms=None)
    server.put.clear()
    heard = len(server.heard)
    offer(1)
    assert run() == 1
    assert [visit for visit, _, _ in server.put] == [1]
    assert ("POST", "/v1/visits/0/give-up") in [(method, path) for method, path, _ in server.heard[heard:]]
    assert [announced.keys() for _, announced, _ in server.put] == [KEYS]


def test_a_client_without_terms_refuses_a_private_visit(helper, refuses, offer):
    offer(0)
    refuses("masked updates only: join with --terms", terms=None)
