"""Files and options of clients with terms; ``test_private_run.py`` has the rest."""

import json
import re
from dataclasses import replace

import pytest
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.client_folder.private_record import TrainedModels
from offbeat_client.private_updates import private_updates
from offbeat_core.errors import OffbeatError
from offbeat_private.signed_terms import verify

from tests.offbeat_client.helper_facts import TERMS, private_folder


@pytest.fixture
def folder(tmp_path):
    return private_folder(tmp_path / "me")


def made(folder, terms="terms.json", key=None):
    return private_updates(folder, terms and folder.with_name(terms), key, Outbox(folder))


def refused(folder, *options):
    with pytest.raises(OffbeatError, match=r"^[^\n]+$") as caught:
        made(folder, *options)
    assert not list(folder.glob("private-*"))
    return str(caught.value)


def test_a_client_logs_the_fingerprint_to_compare(folder, caplog):
    with caplog.at_level("INFO", "offbeat_client"):
        made(folder)
    terms = verify(folder.with_name("terms.json").read_bytes()).terms
    groups = re.fullmatch(r"fingerprint of helper and terms: ((?:[0-9a-f]{4} ?){8}); compare .*", caplog.messages[0])
    assert groups is not None
    assert bytes.fromhex(groups[1]) == terms.digest[:16]
    assert replace(terms, helper_key=bytes(32)).fingerprint != terms.fingerprint


def test_a_key_may_be_elsewhere_but_is_not_made(folder):
    assert made(folder, None) is None
    assert "--privacy-key is for a private run: give --terms" in refused(folder, None, folder / "signing-key")
    key = (folder / "signing-key").rename(folder.with_name("key"))
    assert f"make one with offbeat client key --folder {folder}" in refused(folder)
    assert made(folder, "terms.json", key) is not None
    assert not (folder / "signing-key").exists()


def test_terms_that_cannot_be_read_are_one_line(folder):
    assert "cannot read the terms in" in refused(folder, "missing.json")
    path = folder.with_name("terms.json")
    signed = json.loads(path.read_text())
    path.write_text(json.dumps(signed | {"terms": signed["terms"].replace('"min_clients":2', '"min_clients":3')}))
    assert (
        "signature does not fit its terms, so somebody has changed the file: ask the helper's operator for the file"
        in refused(folder)
    )


def test_terms_are_remembered_before_anything_is_sent(folder):
    made(folder)
    with pytest.raises(OffbeatError, match="has joined with --terms before: give them, or another folder"):
        made(folder, None)


def test_a_version_of_which_a_share_was_begun_is_not_trained_from_again(folder, visit):
    """A kill came before the record of the share, and then the server did not want it any more."""
    TrainedModels(folder, TERMS.digest).keep(12, "0b" * 32)
    private = made(folder)
    assert [private.starts_later(visit(version=version)) for version in (11, 12, 13)] == [False, False, True]
