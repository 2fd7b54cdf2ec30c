"""The rules: every attack is refused with its own kind, and nothing changes."""

import copy

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.helper.opening_rules import EPOCH_BATCHES, ClientHistory, Opened, Rules
from offbeat_private.masks.helper_facts import Head
from offbeat_private.signed_terms import Terms

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, KEYS, LOCAL, TERMS, make_record

ROSTERED = 7
HELPER_KEY = Ed25519PrivateKey.from_private_bytes(bytes([88] * 32))
INFO, CIPHERTEXT, SIGNATURE = 212, 276, 356  # where a record's head signature, ciphertext and signature begin
HPKE_KEY = X25519PrivateKey.from_private_bytes(bytes([77] * 32)).public_key().public_bytes_raw()


def make_terms(**changes):
    values = {key: value for key, value in TERMS.items() if key != "delta"}
    values |= {
        "run": bytes(16),
        "helper_key": HELPER_KEY.public_key().public_bytes_raw(),
        "mechanism": "independent",
        "bands": 1,
        "local": AgreedPlan(**LOCAL),
    }
    return Terms(**values | changes)


class World:
    """Rules, and clients that seal for them."""

    def __init__(self, **terms):
        self.terms = make_terms(**terms)
        self.rules = Rules(self.terms, CLIENT_KEYS[:ROSTERED], Opened())

    def record(self, client, visit, start=None, /, head=None, **changes):
        """Return a client's record; the helper has signed the head, which it may replace."""
        head, epoch = head or self.rules.head, self.rules.epoch
        signature = HELPER_KEY.sign(head.signed_message(self.terms.digest))
        changes = {"version": self.rules.head.number} | changes
        return make_record(self.terms, head, signature, epoch, HPKE_KEY, client, visit, start, **changes)

    def records(self, visits, **changes):
        return [self.record(client, visit, **changes) for client, visit in visits.items()]

    def open(self, number, records):
        batch = self.rules.check(number, records)
        if batch is not None:
            self.rules.record(batch, self.rules.head_after(batch, bytes(32)))
        return batch

    def refused(self, number, records):
        """Return the refusal of a batch, which changes nothing."""
        before = copy.deepcopy(self.rules.opened)
        with pytest.raises(HelperRefusal) as caught:
            self.open(number, records)
        if caught.value.kind == "rolled-back":
            before.is_stopped = True
        assert self.rules.opened == before
        assert "\n" not in caught.value.detail
        return caught.value

    def kind(self, number, records):
        return self.refused(number, records).kind


@pytest.fixture
def world():
    return World()


def flipped(record, position):
    changed = bytearray(record)
    changed[position] ^= 1
    return bytes(changed)


def test_a_batch_has_the_fewest_to_the_most_clients_each_once(world):
    for batch, kind in [
        (world.records({0: 0, 1: 0}), "too-few-clients"),
        ([], "too-few-clients"),
        (world.records(dict.fromkeys(range(5), 0)), "too-many-clients"),
        ([*world.records({0: 0, 1: 0}), world.record(0, 0)], "client-twice"),
    ]:
        assert world.kind(1, batch) == kind
    refusal = world.refused(1, [*world.records({0: 0, 1: 0}), world.record(0, 1)])
    assert (refusal.kind, refusal.client) == ("client-twice", CLIENT_KEYS[0])
    trio = world.records({0: 0, 1: 0, 2: 0})
    for number in (0, 2, 2**63 - 1):
        assert world.kind(number, trio) == "wrong-number"
    genesis = world.rules.head
    assert world.open(1, trio).number == 1
    older = [world.record(3, 0, head=genesis), *world.records({4: 0, 5: 0, 6: 0})]  # quotes an older head
    assert world.open(2, older).number == 2
    assert {history.participations for history in world.rules.opened.histories.values()} == {1}


def test_a_repeated_batch_is_recognised_in_any_order_and_an_opened_number_takes_no_other(world):
    records = world.records({0: 0, 1: 0, 2: 0})
    world.open(1, records)
    before = copy.deepcopy(world.rules.opened)
    assert world.open(1, records[::-1]) is None
    assert world.rules.opened == before
    assert world.kind(1, [*records, world.record(3, 0)]) == "other-batch"
    assert world.kind(1, records[:2]) == "other-batch"
    assert world.kind(1, [*records, records[0]]) == "other-batch"


def test_visits_and_start_versions_of_a_client_rise(world):
    first = [world.record(0, 4, 4), *world.records({1: 0, 2: 0})]
    world.open(1, first)
    others = world.records({3: 0, 4: 0})
    refusal = world.refused(2, [first[0], *others])
    assert (refusal.kind, refusal.client) == ("visit-opened", CLIENT_KEYS[0])
    assert world.kind(2, [world.record(0, 3, 5), *others]) == "visit-opened"
    assert world.kind(2, [world.record(0, 5, 4), *others]) == "start-version-opened"
    assert world.kind(2, [world.record(0, 5, 3), *others]) == "start-version-opened"
    world.open(2, [world.record(0, 5, 5), *others])


def model(world, client, start, digest, visit=None):
    return world.record(client, start if visit is None else visit, start, model=bytes([digest] * 32))


def test_a_version_has_one_model_within_a_batch(world):
    """Updates from a crafted model are known, and so is then the one of the client that got another."""
    for odd in range(3):  # whichever it is, and wherever its record lies
        batch = [model(world, client, 0, client == odd) for client in range(3)]
        refusal = world.refused(1, batch)
        assert (refusal.kind, refusal.client) == ("other-model", CLIENT_KEYS[odd])
        assert "another model as version 0 than others" in refusal.detail
    world.open(1, [model(world, client, client, client) for client in range(3)])  # versions of their own


def test_a_version_has_one_model_in_later_batches_too(world):
    world.open(1, [model(world, 0, 0, 7), model(world, 1, 0, 7), model(world, 2, 0, 7)])
    later = [model(world, 3, 0, 8), model(world, 4, 0, 8), model(world, 5, 0, 8)]
    refusal = world.refused(2, later)
    assert (refusal.kind, refusal.client in CLIENT_KEYS[3:6]) == ("other-model", True)
    assert world.kind(2, [model(world, 3, 0, 7), model(world, 4, 0, 7), later[2]]) == "other-model"
    world.rules = Rules(world.terms, CLIENT_KEYS[:ROSTERED], copy.deepcopy(world.rules.opened))
    assert world.kind(2, later) == "other-model"
    world.open(2, [model(world, 3, 0, 7), model(world, 4, 0, 7), model(world, 0, 1, 9)])


def test_participations_and_their_costs_are_counted_over_all_runs():
    world, masks = World(), World(noise_multiplier=0)
    world.rules.opened.histories[CLIENT_KEYS[2]] = ClientHistory(participations=3, spent=0.25)
    for number in (1, 2):
        world.open(number, world.records({0: number, 1: number, 2: number}))
    refusal = world.refused(3, [world.record(2, 3), *world.records({3: 3, 4: 3})])
    assert (refusal.kind, refusal.client) == ("participations-spent", CLIENT_KEYS[2])
    world.open(3, world.records({0: 3, 1: 3, 5: 3}))
    assert [world.rules.opened.histories[CLIENT_KEYS[client]].spent for client in (0, 2)] == [12.0, 8.25]  # σ = ½
    masks.open(1, masks.records({0: 0, 1: 0, 2: 0}))
    assert masks.rules.opened.histories[CLIENT_KEYS[0]].spent == float("inf")


def test_a_client_whose_epsilon_over_all_runs_would_exceed_the_limit_is_refused():
    world = World()  # σ = ½: a participation costs 4
    world.rules = Rules(world.terms, CLIENT_KEYS[:ROSTERED], Opened(), largest_spending=8.25)
    world.rules.opened.histories[CLIENT_KEYS[2]] = ClientHistory(participations=1, spent=0.5)
    world.open(1, world.records({0: 1, 1: 1, 2: 1}))
    refusal = world.refused(2, world.records({0: 2, 1: 2, 2: 2}))
    assert (refusal.kind, refusal.client) == ("epsilon-spent", CLIENT_KEYS[2])
    world.open(2, world.records({0: 2, 1: 2, 3: 2}))
    assert world.kind(3, world.records({0: 3, 3: 3, 4: 3})) == "epsilon-spent"


@pytest.mark.parametrize("separation", [2, 3])
def test_batches_of_a_client_keep_their_distance(separation):
    world = World(min_separation=separation)
    world.open(1, world.records({0: 1, 1: 1, 2: 1}))
    for number in range(2, separation + 1):
        assert world.kind(number, world.records({0: 3, 5: 3, 6: 3})) == "too-soon"
        world.rules.opened.batches.append(bytes(32))
        world.rules.opened.heads.append(Head(number, bytes(32)))
    world.open(separation + 1, world.records({0: 3, 5: 3, 6: 3}))


def resigned(record, client):
    return record[:SIGNATURE] + KEYS[client].sign(b"offbeat-share-v1" + record[:SIGNATURE])


def test_a_flipped_bit_in_any_part_of_a_record_is_refused(world):
    records = world.records({0: 0, 1: 0, 2: 0})
    kinds = {world.kind(1, [flipped(records[0], position), *records[1:]]) for position in range(len(records[0]))}
    assert kinds == {"wrong-signature", "wrong-terms", "wrong-run", "unknown-client"}
    for begin in (INFO, CIPHERTEXT, SIGNATURE):
        assert world.kind(1, [flipped(records[0], begin + 5), *records[1:]]) == "wrong-signature"
    assert world.kind(1, [flipped(records[0], 130), *records[1:]]) == "wrong-signature"  # the model's digest
    assert world.kind(1, [records[0][:-1], *records[1:]]) == "malformed-record"
    assert world.kind(1, [records[0][:80] + b"\xff" + records[0][81:], *records[1:]]) == "malformed-record"


def named(world, records):
    refusal = world.refused(1, records)
    assert refusal.client == CLIENT_KEYS[0]
    assert CLIENT_KEYS[0].hex()[:16] in refusal.detail
    return refusal.kind


def test_a_record_of_another_run_version_terms_or_key_is_refused_and_its_client_named(world):
    others = world.records({1: 0, 2: 0})
    weaker = make_terms(min_clients=2).digest
    assert named(world, [world.record(0, 0, run=bytes([9] * 16)), *others]) == "wrong-run"
    assert named(world, [world.record(0, 0, terms=weaker), *others]) == "wrong-terms"
    assert named(world, [world.record(0, 0, version=1), *others]) == "version-ahead"
    assert named(world, [world.record(0, 0, epoch=1), *others]) == "wrong-epoch"
    assert named(world, [resigned(world.record(0, 0), 3), *others]) == "wrong-signature"
    assert world.kind(1, [world.record(ROSTERED, 0), *others]) == "unknown-client"


def test_a_head_that_the_helper_has_not_signed_is_refused_and_its_client_named(world):
    """A client may quote anything, even numbers beyond the helper's own: it cannot stop it."""
    others = world.records({1: 0, 2: 0})
    truly = world.record(0, 0)
    for forged in [
        resigned(flipped(truly, INFO), 0),  # the head's signature
        resigned(
            truly[:INFO] + KEYS[0].sign(world.rules.head.signed_message(world.terms.digest)) + truly[CIPHERTEXT:], 0
        ),
        world.record(0, 0, head_number=9),
        *(resigned(flipped(truly, position), 0) for position in range(168, 208)),  # the head's number and digest
    ]:
        assert named(world, [forged, *others]) == "wrong-head"
    assert not world.rules.opened.is_stopped
    world.open(1, [truly, *others])


def test_a_helper_restored_from_an_old_copy_stops_for_good(world):
    world.open(1, world.records({0: 0, 1: 0, 2: 0}))
    yesterday = copy.deepcopy(world.rules.opened)
    world.open(2, world.records({3: 0, 4: 0, 5: 0}))
    ahead = [world.record(6, 0, version=0), *world.records({0: 2, 1: 2}, version=0)]
    world.rules = Rules(world.terms, CLIENT_KEYS[:ROSTERED], yesterday)
    later = world.records({3: 1, 4: 1, 5: 1})
    refusal = world.refused(2, ahead)
    assert refusal.kind == "rolled-back"
    assert "enrol again" in refusal.detail
    assert yesterday.is_stopped
    assert world.kind(2, later) == "rolled-back"
    assert world.kind(1, later) == "rolled-back"


def test_a_helper_that_went_on_from_an_old_copy_stops_when_it_sees_its_other_chain(world):
    world.open(1, world.records({0: 0, 1: 0, 2: 0}))
    yesterday = copy.deepcopy(world.rules.opened)
    world.open(2, world.records({3: 0, 4: 0, 5: 0}))
    aware = [world.record(6, 0), *world.records({0: 2, 1: 2})]
    world.rules = Rules(world.terms, CLIENT_KEYS[:ROSTERED], yesterday)
    world.open(2, world.records({2: 1, 3: 1, 4: 1}))
    assert world.kind(3, aware) == "rolled-back"


def test_a_stranger_cannot_stop_a_helper(world):
    far = Head(9, bytes(32))
    assert world.kind(1, [world.record(ROSTERED, 0, head=far), *world.records({0: 0, 1: 0})]) == "unknown-client"
    forged = flipped(world.record(0, 0, head=far), SIGNATURE)
    assert world.kind(1, [forged, *world.records({1: 0, 2: 0})]) == "wrong-signature"
    assert not world.rules.opened.is_stopped


def test_an_epochs_key_is_accepted_in_the_next_epoch_and_its_answers_are_kept_as_long(world):
    heads = [Head(number, bytes([number % 256] * 32)) for number in range(1, 2 * EPOCH_BATCHES + 1)]
    digests = [bytes(32)] * len(heads)
    trio = world.records({0: 0, 1: 0, 2: 0})
    batch = world.rules.check(1, trio)
    digests[0] = batch.digest

    def at(counter):
        world.rules = Rules(world.terms, CLIENT_KEYS[:ROSTERED], Opened(digests[:counter], heads[:counter]))
        return world

    assert at(99).rules.epoch == 0
    assert at(100).rules.epoch == 1
    at(100).open(101, world.records({0: 0, 1: 0, 2: 0}, epoch=0))
    assert world.kind(102, world.records({3: 0, 4: 0, 5: 0}, epoch=2)) == "wrong-epoch"
    assert at(199).open(1, trio) is None
    assert at(200).kind(1, trio) == "answer-erased"
    assert world.kind(201, world.records({0: 0, 1: 0, 2: 0}, epoch=0)) == "wrong-epoch"
    at(200).open(201, world.records({0: 0, 1: 0, 2: 0}, epoch=1))
