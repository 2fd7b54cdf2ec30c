import re
import stat

import pytest
from offbeat_client.client_folder.private_record import (
    PrivateRecord,
    PrivateRecordFile,
    TrainedModels,
    compare_models,
    has_private_record,
    read_models,
)
from offbeat_core.errors import OffbeatError


def test_a_record_is_kept_for_each_run(tmp_path):
    first, second = (PrivateRecordFile(tmp_path, digest) for digest in (b"1" * 32, b"2" * 32))
    assert first.read() == PrivateRecord(visit=-1, start_version=-1, head_number=-1, head="", epoch=-1)
    assert not has_private_record(tmp_path)
    first.write(PrivateRecord(3, 7, 5, "0a"))
    assert has_private_record(tmp_path)
    assert PrivateRecordFile(tmp_path, b"1" * 32).read() == PrivateRecord(3, 7, 5, "0a")
    assert second.read() == PrivateRecord()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_broken_record_is_one_line(tmp_path):
    (tmp_path / f"private-{(b'1' * 32).hex()}.json").write_text("{")
    with pytest.raises(OffbeatError, match=r"^[^\n]*is broken: put it back, or have a new key enrolled"):
        PrivateRecordFile(tmp_path, b"1" * 32).read()


TERMS = bytes(range(32))
DIGESTS = [f"{number:02x}" * 32 for number in range(9)]


def kept(folder, digests, terms=TERMS):
    """Return the file of a client that has trained from these models, by version."""
    folder.mkdir(exist_ok=True)
    models = TrainedModels(folder, terms)
    for version, digest in digests.items():
        models.keep(version, DIGESTS[digest])
    return folder / f"models-{terms.hex()}.txt"


def test_models_are_kept_over_restarts(tmp_path):
    models = TrainedModels(tmp_path, TERMS)
    assert (models.latest, models.version_of(DIGESTS[0])) == (-1, None)
    models.keep(4, DIGESTS[0])
    models.keep(4, DIGESTS[0])  # another share of the same visit
    models.keep(7, DIGESTS[1])
    again = TrainedModels(tmp_path, TERMS)
    assert (again.latest, again.version_of(DIGESTS[0]), again.version_of(DIGESTS[1])) == (7, 4, 7)
    (path,) = tmp_path.iterdir()
    assert path.read_text() == f"offbeat models of the terms {TERMS.hex()}\n4 {DIGESTS[0]}\n7 {DIGESTS[1]}\n"
    assert TrainedModels(tmp_path, bytes(32)).latest == -1  # another run


def test_a_kill_at_any_byte_loses_no_earlier_line(tmp_path):
    path = kept(tmp_path, {4: 0, 7: 1, 12: 2})
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        models = TrainedModels(tmp_path, TERMS)
        lines = content[:size].count(b"\n")
        assert models.latest == [-1, -1, 4, 7][lines]
        if models.latest == 7:
            models.keep(12, DIGESTS[2])
            assert path.read_bytes() == content
        elif models.latest == -1:
            models.keep(4, DIGESTS[0])
            assert read_models(path).digests == {4: DIGESTS[0]}


def test_a_damaged_file_is_refused_before_anything_is_sent(tmp_path):
    path = kept(tmp_path, {4: 0, 7: 1})
    path.write_text(path.read_text().replace("7 01", "7 0x"))
    with pytest.raises(OffbeatError, match=r"damaged: line 3 is not .*: put it back, or have a new key enrolled"):
        TrainedModels(tmp_path, TERMS)


def test_clients_with_the_same_models(tmp_path):
    one, two = kept(tmp_path / "a", {1: 1, 2: 2, 5: 5}), kept(tmp_path / "b", {2: 2, 4: 4, 5: 5})
    assert compare_models(one, two) == compare_models(two, one) == 2
    two.write_bytes(two.read_bytes() + b"6 77")  # its client was killed
    assert compare_models(one, two) == 2


def refused(one, two):
    with pytest.raises(OffbeatError, match=r"^[^\n]+$") as caught:
        compare_models(one, two)
    return str(caught.value)


def test_a_server_that_gave_different_models_is_found(tmp_path):
    one = kept(tmp_path / "a", {1: 1, 2: 2, 5: 5})
    line = refused(one, kept(tmp_path / "b", {1: 1, 2: 3, 5: 6}))
    assert line.startswith("the server gave different models as version 2: 0202020202020202… in ")
    line = refused(one, kept(tmp_path / "c", {1: 1, 4: 2}))
    assert line == (
        f"the server gave one model as two versions: 2 in {one}, 4 in {tmp_path / 'c' / f'models-{TERMS.hex()}.txt'}"
    )


def test_files_that_cannot_be_compared_are_one_line(tmp_path):
    good, path = kept(tmp_path / "a", {1: 1}), tmp_path / "other"
    assert "of different runs: their terms differ" in refused(good, kept(tmp_path / "b", {1: 1}, bytes(32)))
    assert "have no version in common: there is nothing to compare" in refused(good, kept(tmp_path / "c", {2: 2}))
    assert refused(good, path) == f"cannot read {path}: No such file or directory"
    assert "Is a directory" in refused(good, tmp_path)
    header, line = good.read_text().splitlines()
    for content in ("", "x", header, "{}\n", "\x00\xff\n", f"{header}x\n"):
        path.write_text(content)
        assert "is not a list of models: name the file models-….txt in a client's folder" in refused(good, path)
    after = "2 " + line.removeprefix("1 ")
    numbers = [f"{number} {DIGESTS[1]}" for number in ("-1", "01", "1 ", 10**19)]
    order = [f"{after}\n{line}", f"{line}\n{line}"]
    for wrong in ["", "3", f"{line}0", *numbers, *order, line.upper().replace("0", "A"), f"{line}\r"]:
        path.write_text(f"{header}\n{wrong}\n", newline="")
        assert re.search(
            r"is damaged: line [23] is not a version after the last one and its digest", refused(path, good)
        )
    path.write_text(f"{header}\n")
    assert "no version in common" in refused(good, path)
