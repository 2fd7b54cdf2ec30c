"""The helper on its folder: answers, retries, restarts, epochs, copies."""

import hashlib
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from struct import pack

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_core.errors import OffbeatError
from offbeat_private.helper import opening_rules
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.helper_facts import Head, verify_epoch_key
from offbeat_private.masks.keystream import keystream
from offbeat_private.noise.noise_rows import NoiseSource

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, enrol_clients, make_record, records_for, seed_of
from tests.service.faults import ERRORS, Faults

TRIO = {0: 1, 1: 1, 2: 1}
OTHERS = {3: 1, 4: 1, 5: 1}


@contextmanager
def opened(folder):
    with closing(Helper(folder)) as helper:
        yield helper


def words_of(answer):
    return np.frombuffer(answer.path.read_bytes(), "<u4")


def expected_words(folder, terms, number, visits):
    """Return Σ masks − noise, worked out without the helper's code."""
    with closing(sqlite3.connect(folder / "helper.sqlite")) as database:
        chain = database.execute("SELECT digest, head FROM batches ORDER BY number").fetchall()
    (secret,) = [path.read_bytes() for path in folder.glob("run-*/noise-secret")]
    total = sum(keystream(seed_of(*visit), 0, terms.length).astype(object) for visit in visits.items())
    if terms.noise_multiplier:
        source = NoiseSource(
            secret,
            terms.length,
            noise_multiplier=terms.noise_multiplier,
            largest=terms.largest,
            participations=terms.max_participations,
            separation=terms.min_separation,
            bands=terms.bands,
        )
        first = hashlib.sha256(b"offbeat-chain-v1" + terms.digest).digest()
        heads = [first, *(head for _, head in chain)]
        digests = [
            hashlib.sha256(b"offbeat-chain-v1" + pack(">Q", n) + heads[n - 1] + chain[n - 1][0]).digest()
            for n in range(1, number + 1)
        ]
        total = total - source.noise(number, digests).astype(object)
    return [word % 2**32 for word in total]


def files_of(folder):
    """Return the content of all files and tables that a refused batch must leave unchanged."""
    names = [path for path in folder.rglob("*") if path.is_file() and ".sqlite" not in path.name]
    with closing(sqlite3.connect(folder / "helper.sqlite")) as database:
        tables = [
            database.execute(f"SELECT * FROM {table}").fetchall() for table in ("batches", "clients", "run", "seeds")
        ]
    return {str(path): path.read_bytes() for path in names}, tables


def noises_of(folder, batches):
    """Open batches, each of visits and records or none; return the noise in their answers."""
    noises = []
    with opened(folder) as helper:
        for number, (visits, records) in enumerate(batches, 1):
            masks = sum(keystream(seed_of(*visit), 0, helper.terms.length) for visit in visits.items())
            answer = words_of(helper.open(number, records or records_for(helper, visits)))
            noises.append((masks - answer).view(np.int32).astype(int))
    return noises


def refusal_of(helper, number, records):
    with pytest.raises(HelperRefusal) as caught:
        helper.open(number, records)
    return caught.value


@pytest.mark.parametrize("terms", [{}, {"noise_multiplier": 0.0}, {"mechanism": "banded", "min_separation": 2}])
def test_an_answer_is_the_sum_of_the_masks_minus_the_noise(tmp_path, terms):
    enrol_clients(tmp_path, **terms)
    with opened(tmp_path) as helper:
        for number, visits in enumerate([TRIO, OTHERS, {0: 2, 1: 2, 2: 2, 6: 2}], 1):
            answer = helper.open(number, records_for(helper, visits))
            assert words_of(answer).tolist() == expected_words(tmp_path, helper.terms, number, visits)
            assert answer.head.number == number


def test_a_repeated_batch_gets_the_same_answer_also_in_another_order_and_after_a_restart(folder):
    with opened(folder) as helper:
        records = records_for(helper, TRIO)
        first = helper.open(1, records)
        content = first.path.read_bytes()
        secret = [folder, *folder.glob("*key"), *folder.glob("helper.sqlite*"), *folder.glob("run-*/**/*")]
        assert {path.stat().st_mode & 0o077 for path in secret if not path.name.endswith("-shm")} == {0}
        helper.open(2, records_for(helper, OTHERS))
        before = files_of(folder)
        assert helper.open(1, records[::-1]) == first
    with opened(folder) as helper:
        assert helper.open(1, records) == first
        assert first.path.read_bytes() == content
        assert files_of(folder) == before


def test_heads_are_signed_and_chain_the_answers(folder):
    with opened(folder) as helper:
        terms = helper.terms
        key = Ed25519PublicKey.from_public_bytes(terms.helper_key)
        head = helper.facts().head
        assert head == Head(0, hashlib.sha256(b"offbeat-chain-v1" + terms.digest).digest())
        for number, visits in enumerate([TRIO, OTHERS], 1):
            records = records_for(helper, visits)
            answer = helper.open(number, records)
            eight = number.to_bytes(8, "big")
            batch = hashlib.sha256(b"offbeat-batch-v1" + terms.run + eight + b"".join(sorted(records))).digest()
            content = hashlib.sha256(answer.path.read_bytes()).digest()
            chained = hashlib.sha256(b"offbeat-chain-v1" + eight + head.digest + batch + content).digest()
            head = Head(number, chained)
            assert answer.head == helper.facts().head == head
            key.verify(answer.signature, b"offbeat-head-v1" + terms.digest + eight + head.digest)
            assert helper.facts().signature == answer.signature


def test_a_seed_that_cannot_be_opened_is_named_and_nothing_changes(folder):
    with opened(folder) as helper:
        other_key = X25519PrivateKey.generate().public_key().public_bytes_raw()
        facts = helper.facts()
        sealed_wrongly = make_record(helper.terms, facts.head, facts.signature, facts.epoch, other_key, 1, 1)
        records = [*records_for(helper, {0: 1, 2: 1}), sealed_wrongly]
        before = files_of(folder)
        refusal = refusal_of(helper, 1, records)
        assert (refusal.kind, refusal.client) == ("sealed-wrongly", CLIENT_KEYS[1])
        assert files_of(folder) == before
        assert helper.facts() == facts
        helper.open(1, records_for(helper, TRIO))


def test_refused_batches_release_and_change_nothing(folder):
    with opened(folder) as helper:
        helper.open(1, records_for(helper, TRIO))
        before, facts = files_of(folder), helper.facts()
        records = records_for(helper, OTHERS)
        for number, refused in [
            (2, records[:2]),
            (3, records),
            (1, records),
            (2, [*records[:2], records_for(helper, {7: 1}, version=2)[0]]),
            (2, [*records[:2], *records_for(helper, {0: 1})]),
        ]:
            refusal_of(helper, number, refused)
            assert files_of(folder) == before
            assert helper.facts() == facts


def test_a_helper_restored_from_yesterdays_copy_stops_for_good(folder, tmp_path):
    with opened(folder) as helper:
        helper.open(1, records_for(helper, TRIO))
    yesterday = shutil.copytree(folder, tmp_path / "yesterday")
    with opened(folder) as helper:
        helper.open(2, records_for(helper, OTHERS))
        aware = records_for(helper, {0: 2, 1: 2, 2: 2}, version=1)
    with opened(yesterday) as helper:
        unaware = records_for(helper, {3: 2, 4: 2, 5: 2})
        before, _ = files_of(yesterday)
        assert refusal_of(helper, 2, aware).kind == "rolled-back"
        assert files_of(yesterday)[0] == before
        assert refusal_of(helper, 2, unaware).kind == "rolled-back"
    with opened(yesterday) as helper:
        assert refusal_of(helper, 2, unaware).kind == "rolled-back"
        assert helper.facts().head.number == 1
    enrol_clients(yesterday)  # a new run
    with opened(yesterday) as helper:
        helper.open(1, records_for(helper, OTHERS))


@pytest.mark.parametrize("terms", [{}, {"mechanism": "banded", "min_separation": 2}])
def test_two_copies_of_a_folder_never_add_the_same_noise_to_different_batches(tmp_path, terms):
    """A server that hides newer heads from a restored helper could subtract the two sums."""
    enrol_clients(tmp_path / "helper", **terms)
    yesterday = shutil.copytree(tmp_path / "helper", tmp_path / "yesterday")
    (one,), (other,) = noises_of(tmp_path / "helper", [(TRIO, None)]), noises_of(yesterday, [(OTHERS, None)])
    assert (one != other).mean() > 0.9


def test_copies_that_opened_one_different_batch_never_share_a_row_again(tmp_path):
    """Banded noise is c̃_0 G_2 + c̃_1 G_1: with the same G_2, two equal batches would show the difference of two G_1."""
    enrol_clients(tmp_path / "helper", mechanism="banded", min_separation=2)
    late = {5: 1, 6: 1, 7: 1}  # clients that began before the copies differed
    with opened(tmp_path / "helper") as helper:
        later = records_for(helper, late)
    copy = shutil.copytree(tmp_path / "helper", tmp_path / "copy")
    first, second = noises_of(tmp_path / "helper", [(TRIO, None), (late, later)])
    other_first, other_second = noises_of(copy, [(TRIO | {3: 1}, None), (late, later)])
    assert (np.abs(first - other_first + 2 * (second - other_second)) > 4).mean() > 0.9


def test_keys_rotate_and_what_an_epoch_ends_is_erased(folder, monkeypatch):
    monkeypatch.setattr(opening_rules, "EPOCH_BATCHES", 3)

    def kept(name):
        return sorted(int(path.name) for path in folder.glob(f"run-*/{name}/*"))

    with opened(folder) as helper:
        public_keys, batches = set(), {}
        for number in range(1, 8):
            last_epoch = records_for(helper, {3 * (number % 2): number})
            facts = helper.facts()
            assert facts.epoch == (number - 1) // 3
            public_keys.add(verify_epoch_key(facts.epoch_key, helper.terms).public_key)
            assert kept("keys") == [epoch for epoch in (facts.epoch - 1, facts.epoch) if epoch >= 0]
            first = 3 * max(0, facts.epoch - 1) + 1
            assert kept("answers") == list(range(first, number))
            clients = [3 * (number % 2) + member for member in range(3)]
            batches[number] = [*last_epoch, *records_for(helper, dict.fromkeys(clients[1:], number))]
            helper.open(number, batches[number])
        assert len(public_keys) == 3
        helper.open(4, batches[4])
        assert refusal_of(helper, 3, batches[3]).kind == "answer-erased"


def test_a_share_sealed_before_a_rotation_is_opened_after_it(folder, monkeypatch):
    monkeypatch.setattr(opening_rules, "EPOCH_BATCHES", 1)
    with opened(folder) as helper:
        early, too_early = records_for(helper, {3: 1, 4: 1, 5: 1}), records_for(helper, {0: 2, 1: 2, 2: 2})
        helper.open(1, records_for(helper, TRIO))
        assert helper.open(2, early).head.number == 2
        assert refusal_of(helper, 3, too_early).kind == "wrong-epoch"


def test_an_erased_key_is_overwritten_first(folder, monkeypatch):
    monkeypatch.setattr(opening_rules, "EPOCH_BATCHES", 1)
    with opened(folder) as helper:
        (path,) = folder.glob("run-*/keys/0")
        link = folder / "link"
        link.hardlink_to(path)
        assert link.read_bytes() != bytes(32)
        helper.open(1, records_for(helper, TRIO))
        helper.open(2, records_for(helper, OTHERS))
        assert not path.exists()
        assert link.read_bytes() == bytes(32)


def test_a_folder_that_cannot_be_used_is_one_line(folder):
    with opened(folder):
        for use in (Helper, enrol_clients):
            with pytest.raises(OffbeatError, match="in use by another helper"):
                use(folder)
    (folder / "signing-key").unlink()
    with pytest.raises(OffbeatError, match="signing-key is missing or another one"):
        Helper(folder)
    assert not (folder / "signing-key").exists()
    with pytest.raises(OffbeatError, match="is not a helper's folder"):
        Helper(folder / "nothing")


class FailingDatabase:
    """A connection to SQLite of which one statement fails, before or after it is carried out."""

    def __init__(self, connection, number, *, after):
        self._connection, self._left, self._after = connection, number, after

    def __getattr__(self, name):
        method = getattr(self._connection, name)

        def call(*arguments):
            if arguments[0] == "ROLLBACK":
                return method(*arguments)
            self._left -= 1
            result = None if self._left == -1 and not self._after else method(*arguments)
            if self._left == -1:
                raise sqlite3.OperationalError("disk I/O error")
            return result

        return call if name in ("execute", "executemany") else method


def check_whole(folder, records, other, answers=("1", "2")):
    """Check that the second batch was opened in whole, or not at all, after a restart."""
    with opened(folder) as helper:
        counter = helper.facts().head.number
        assert counter in (1, 2)
        if counter == 2:
            assert refusal_of(helper, 2, other).kind == "other-batch"
        content = helper.open(2, records).path.read_bytes()
        words = np.frombuffer(content, "<u4").tolist()
        assert words == expected_words(folder, helper.terms, 2, OTHERS)
        assert helper.facts().head.number == 2
    with closing(sqlite3.connect(folder / "helper.sqlite")) as database:
        assert database.execute("SELECT count(*), count(DISTINCT hash) FROM seeds").fetchone() == (6, 6)
        assert database.execute("SELECT sum(participations) FROM clients").fetchone() == (6,)
    assert sorted(path.name for path in folder.glob("run-*/answers/*")) == list(answers)
    return counter


def second_batch(folder, failing):
    """Open a second batch while something fails; return the records, other records, and whether it was refused.

    ``folder``.copy is the folder just after the failure.
    """
    shutil.copytree(folder.with_name("enrolled"), folder)
    with opened(folder) as helper:
        helper.open(1, records_for(helper, TRIO))
        records, other = records_for(helper, OTHERS), records_for(helper, {4: 1, 5: 1, 6: 1})
        refusals = []
        with failing(helper):
            try:
                helper.open(2, records)
            except HelperRefusal as refusal:
                refusals = [refusal.kind]
        assert refusals in ([], ["no-space"])
        shutil.copytree(folder, folder.with_suffix(".copy"))
        answer = helper.open(2, records)  # the same process continues as well
        assert words_of(answer).tolist() == expected_words(folder, helper.terms, 2, OTHERS)
    return records, other, bool(refusals)


@contextmanager
def failing_statement(helper, number, *, after):
    real = helper._store._connection
    helper._store._connection = FailingDatabase(real, number, after=after)
    try:
        yield
    finally:
        helper._store._connection = real


@pytest.mark.parametrize("after", [False, True])
def test_a_statement_that_fails_leaves_all_or_nothing(tmp_path, after):
    enrol_clients(tmp_path / "enrolled")
    counters, refused, number = set(), True, 0
    while refused:
        folder = tmp_path / str(number)
        records, other, refused = second_batch(folder, partial(failing_statement, number=number, after=after))
        counters.add(check_whole(folder.with_suffix(".copy"), records, other))
        assert check_whole(folder, records, other) == 2
        number += 1
    assert number >= 5
    assert counters == {1, 2}


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "unlink"])
def test_a_write_that_fails_leaves_all_or_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(opening_rules, "EPOCH_BATCHES", 1)  # so that a key and an answer are erased, too
    enrol_clients(tmp_path / "enrolled")
    counters, hit, number = set(), True, 0
    while hit:
        folder = tmp_path / str(number)
        faults = Faults(folder, kind, number, ERRORS[kind][0])
        records, other, _ = second_batch(folder, lambda _, faults=faults: faults.on())
        counters.add(check_whole(folder.with_suffix(".copy"), records, other, ["2"]))
        assert check_whole(folder, records, other, ["2"]) == 2
        hit = faults.hit
        number += 1
    assert number >= 2
    assert 2 in counters


def test_after_an_unknown_commit_the_disk_decides_what_was_opened(folder, monkeypatch):
    with opened(folder) as helper:
        records, other = records_for(helper, TRIO), records_for(helper, OTHERS)
        commit, load = helper._store.commit, helper._store.opened

        def broken(*arguments):
            commit(*arguments)
            raise sqlite3.OperationalError("disk I/O error")

        def unreadable():
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(helper._store, "commit", broken)
        assert refusal_of(helper, 1, records).kind == "no-space"
        monkeypatch.setattr(helper._store, "opened", unreadable)
        assert refusal_of(helper, 1, other).kind == "no-space"
        monkeypatch.setattr(helper._store, "opened", load)
        assert refusal_of(helper, 1, other).kind == "other-batch"
        assert words_of(helper.open(1, records)).tolist() == expected_words(folder, helper.terms, 1, TRIO)


def test_of_two_batches_at_once_with_one_number_one_is_opened(folder):
    with opened(folder) as helper, ThreadPoolExecutor(2) as pool:
        for number in range(1, 4):
            batches = [records_for(helper, {client + first: number for client in range(3)}) for first in (0, 3)]
            tried = [pool.submit(helper.open, number, records) for records in batches]
            errors = [future.exception() for future in tried]
            assert sorted(error.kind if error else "" for error in errors) == ["", "other-batch"]
        assert helper.facts().head.number == 3
