import shutil
import stat
from contextlib import closing
from pathlib import Path

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.tokens import looks_like
from offbeat_private.agreed_plan import AgreedPlan
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.roster import parse_roster
from offbeat_private.masks.signing_key import public_text
from offbeat_private.signed_terms import verify

from tests.offbeat_private.helper.conftest import KEYS, LOCAL, TERMS, enrol_clients, records_for

CLIENTS = {f"client-{number}": public_text(key) for number, key in enumerate(KEYS)}


def parse(terms=None, clients=CLIENTS, **more):
    table = {"terms": TERMS | (terms or {}), "local": LOCAL, "clients": clients}
    return parse_roster(table | more, Path("roster.toml"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"terms": {"min_clients": 1}}, r"terms\.min_clients = 1: must be greater than or equal to 2"),
        ({"terms": {"min_clients": 5}}, r"terms: min_clients must be in 2 … 4 \(buffer\), got 5"),
        ({"terms": {"min_client": 3}}, r"unknown key terms\.min_client: did you mean 'min_clients'"),
        ({"terms": {"mechanism": "none"}}, r"terms\.mechanism = 'none': must be 'independent' or 'banded'"),
        ({"terms": {"bits": 24, "noise_multiplier": 99.0}}, "could overflow: take fewer bits"),
        ({"terms": {"delta": 1.0}}, r"terms\.delta = 1\.0"),
        ({"terms": {"payload": "params"}}, r"terms\.payload = 'params': must be 'delta' or 'difference'"),
        ({"terms": {"payload": "difference"}}, r"terms: noise_multiplier must be 0 with payload = 'difference'"),
        ({"clients": {"a": "obk_x"}}, r"clients\.a = 'obk_x': a client's key is 'obk_' and 43"),
        ({"clients": {"a": CLIENTS["client-0"], "b": CLIENTS["client-0"]}}, "clients a and b have the same key"),
        ({"clients": dict(list(CLIENTS.items())[:2])}, r"clients: 2 are fewer than terms\.min_clients = 3"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(table, message):
    with pytest.raises(OffbeatError, match=message) as caught:
        parse(**table)
    assert str(caught.value).startswith("roster.toml: ")


def test_the_terms_of_a_roster():
    """Banded noise has as many bands as there are batches between two of a client."""
    for values, expected in [
        ({"mechanism": "banded", "min_separation": 7}, (7, 7, "delta")),
        ({"min_separation": 7}, (1, 7, "delta")),
        ({"payload": "difference", "noise_multiplier": 0.0}, (1, 1, "difference")),
    ]:
        terms = parse(values).terms.build(bytes(16), bytes(32), AgreedPlan(**LOCAL))
        assert (terms.bands, terms.min_separation, terms.payload) == expected


def test_the_banded_noises_factor_counts_towards_overflow():
    settings = {"bits": 24, "noise_multiplier": 11.0, "min_separation": 2}
    parse(settings)
    with pytest.raises(OffbeatError, match="could overflow"):
        parse(settings | {"mechanism": "banded"})


def test_enrolling_makes_what_server_and_clients_need(tmp_path):
    enrolled = enrol_clients(tmp_path)
    signed = verify((tmp_path / "terms.json").read_bytes())
    assert signed.terms == enrolled.terms
    assert (signed.terms.length, signed.terms.min_clients, signed.delta) == (40, 3, 1e-5)
    assert looks_like(enrolled.token, "obh_")
    assert (tmp_path / "tls" / "ca.pem").exists()
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(enrolled.token.encode() in text for text in texts)
    assert stat.S_IMODE((tmp_path / "signing-key").stat().st_mode) == 0o600


def test_enrolling_again_is_a_new_run_in_which_participations_still_count(tmp_path):
    first = enrol_clients(tmp_path, max_participations=1)
    before = {name: (tmp_path / name).read_bytes() for name in ("signing-key", "tls/ca.pem")}
    with closing(Helper(tmp_path)) as helper:
        old = records_for(helper, {3: 1, 4: 1, 5: 1})
        old_key = helper.facts().epoch_key
        helper.open(1, records_for(helper, {0: 1, 1: 1, 2: 1}))
    (secret,) = [path.read_bytes() for path in tmp_path.glob("run-*/noise-secret")]
    second = enrol_clients(tmp_path, max_participations=1)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert first.terms.run != second.terms.run
    assert first.token != second.token
    (new_secret,) = [path.read_bytes() for path in tmp_path.glob("run-*/noise-secret")]
    assert new_secret != secret
    with closing(Helper(tmp_path)) as helper:
        assert helper.facts().head.number == 0
        assert helper.facts().epoch_key != old_key
        with pytest.raises(Exception, match="another run"):
            helper.open(1, old)
        with pytest.raises(Exception, match="has taken part 1 times"):
            helper.open(1, records_for(helper, {0: 1, 3: 1, 4: 1}))
        helper.open(1, records_for(helper, {3: 1, 4: 1, 5: 1}))


def test_an_enrolment_that_was_cut_off_leaves_the_old_run_as_it_was(tmp_path, monkeypatch):
    folder = tmp_path / "helper"
    enrol_clients(folder)
    with closing(Helper(folder)) as helper:
        records = records_for(helper, {0: 1, 1: 1, 2: 1})

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr("offbeat_private.helper.roster.HelperDatabase.enrol", broken)
    with pytest.raises(OSError, match="no space"):
        enrol_clients(folder)
    monkeypatch.undo()
    copy = shutil.copytree(folder, tmp_path / "copy")
    with closing(Helper(copy)) as helper:
        helper.open(1, records)
    enrol_clients(folder)
    assert len(list(folder.glob("run-*"))) == 1
