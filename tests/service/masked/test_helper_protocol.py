import pytest
from offbeat_core.errors import OffbeatError
from offbeat_private.masks.helper_facts import Head

from offbeat.service.masked.helper_connection import HelperConnection
from offbeat.service.masked.helper_protocol import HelperRefusedError, LatestFacts, MaskHelper
from offbeat.service.refusal import Refusal
from tests.service.masked.conftest import enrolled_helper


def test_the_connection_to_a_helper_has_its_methods():
    connection: MaskHelper = HelperConnection("https://localhost:1", "obh_token", None, 6)
    assert {"facts", "open"} <= set(dir(connection))


def test_a_refusal_is_one_line_with_its_kind():
    error = HelperRefusedError("too-soon", "keep it", b"key")
    assert str(error) == "the helper refuses: keep it (too-soon)"
    assert (error.kind, error.detail, error.client) == ("too-soon", "keep it", b"key")
    assert str(HelperRefusedError("", "Bad Gateway")) == "the helper refuses: Bad Gateway"


def test_clients_get_the_helpers_facts_as_it_signed_them(helper):
    latest, facts = LatestFacts(helper.terms), helper.facts()
    latest.take(facts)
    epoch, head = latest.messages()
    assert epoch.number.to_bytes(4, "big") + bytes.fromhex(epoch.public_key + epoch.signature) == facts.epoch_key
    assert (head.number, bytes.fromhex(head.digest)) == facts.head
    assert bytes.fromhex(head.signature) == facts.signature


def test_before_the_helper_has_answered_clients_come_again_later(helper):
    with pytest.raises(Refusal) as caught:
        LatestFacts(helper.terms).messages()
    assert (caught.value.kind, caught.value.headers) == ("busy", {"Retry-After": "5"})


def test_the_facts_of_another_run_are_refused(helper, tmp_path):
    with enrolled_helper(tmp_path / "other") as other, pytest.raises(OffbeatError, match=r"serves run .* not "):
        LatestFacts(helper.terms).take(other.facts())


@pytest.mark.parametrize(
    "change", [{"epoch_key": bytes(100)}, {"signature": bytes(64)}, {"head": Head(1, bytes(32))}, {"epoch_key": b""}]
)
def test_facts_that_the_helper_did_not_sign_are_refused(change, helper):
    latest = LatestFacts(helper.terms)
    with pytest.raises(OffbeatError, match="the helper's facts cannot be used"):
        latest.take(helper.facts()._replace(**change))
    with pytest.raises(Refusal):
        latest.messages()
