import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.local_plan import normaliser
from offbeat_private.masks.envelope import RECORD_BYTES

from offbeat.algorithms import LocalPlan
from offbeat.service.engine.update_intake import private_report
from offbeat.service.refusal import Refusal
from offbeat.service.updates import update_header
from offbeat.service.updates.update_header import (
    ShareHeader,
    UpdateHeader,
    parse_header,
)

HEAD: dict[str, Any] = {
    "version": 12,
    "bytes": 31400,
    "sha256": "9f" * 32,
    "model_sha256": "c8" * 32,
    "examples": 60,
    "steps": 10,
    "normaliser": 10.0,
    "since": 9,
    "step_seconds": 0.2,
    "upload_seconds": 1.3,
    "loss": 0.7,
}
OPTIONAL = ("step_seconds", "upload_seconds", "loss")


def refusal(text: str | None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_header(text)
    assert caught.value.kind == "malformed-request"
    assert len(caught.value.detail.splitlines()) == 1
    assert len(caught.value.detail) < 220
    assert caught.value.detail.isprintable()
    return caught.value


def test_the_protocols_example_is_read() -> None:
    assert parse_header(json.dumps(HEAD)).model_dump(exclude_none=True) == HEAD


def test_a_header_has_one_of_two_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_header, "has_blake3", lambda: True)
    without = {name: value for name, value in HEAD.items() if name != "sha256"}
    assert parse_header(json.dumps(HEAD)).digest == "9f" * 32
    assert parse_header(json.dumps(without | {"blake3": "9f" * 32})).digest == "blake3:" + "9f" * 32
    for wrong in (without, HEAD | {"blake3": "9f" * 32}, without | {"sha256": None}):
        assert "is wrong: one of sha256 and blake3 must be given" in str(refusal(json.dumps(wrong)))
    assert " blake3 must be 64 hexadecimal" in str(refusal(json.dumps(without | {"blake3": "9F" * 32})))
    monkeypatch.setattr(update_header, "has_blake3", lambda: False)
    assert "send sha256" in str(refusal(json.dumps(without | {"blake3": "9f" * 32})))


@pytest.mark.parametrize("key", OPTIONAL)
def test_measurements_may_be_left_out_or_null(key: str) -> None:
    without = {name: value for name, value in HEAD.items() if name != key}
    assert parse_header(json.dumps(without)) == parse_header(json.dumps(HEAD | {key: None}))
    assert getattr(parse_header(json.dumps(without)), key) is None


@pytest.mark.parametrize("key", sorted(HEAD.keys() - {*OPTIONAL, "sha256"}))
def test_the_rest_may_not_be_left_out(key: str) -> None:
    without = {name: value for name, value in HEAD.items() if name != key}
    assert f" {key} must be " in str(refusal(json.dumps(without)))


ALLOWED = {
    "since": [None, 0],
    "version": [0, 2**63 - 1],
    "bytes": [1],
    "examples": [1, 2**31 - 1],
    "steps": [0, 2**31 - 1],
    "normaliser": [0, 3.4e38],
    "step_seconds": [0, 1e300],
    "loss": [3.4e38, -3.4e38, 0],
}
REFUSED = {
    "version": [-1, 2**63, 10**3000, 12.0, "12", True, None],
    "bytes": [0],
    "sha256": ["9f" * 31, "9F" * 32, "9f" * 32 + "\n", "\ud800" * 64, "٣" * 64],
    "examples": [0, 2**31],
    "steps": [-1, 2**31],
    "normaliser": [-1e-9, 3.5e38, 10**3000, "1", True],
    "since": [-1, []],
    "step_seconds": [-0.1, 10**3000],
    "upload_seconds": [{}],
    "loss": [3.5e38, -3.5e38, 10**3000, "0.7", True, [0.7]],
}


def pairs(values: dict[str, list[Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("key", "value"), [(key, value) for key in values for value in values[key]])


@pairs(ALLOWED)
def test_the_ends_of_the_ranges_are_allowed(key: str, value: object) -> None:
    assert getattr(parse_header(json.dumps(HEAD | {key: value})), key) == value


@pairs(REFUSED)
def test_a_value_out_of_range_is_refused_by_name(key: str, value: object) -> None:
    assert f" {key} must be " in str(refusal(json.dumps(HEAD | {key: value})))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_malformed_numbers_are_refused(number: str) -> None:
    refusal(json.dumps(HEAD).replace("0.2", number))
    refusal(json.dumps(HEAD).replace("0.7", number))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "is missing"),
        ("", "Expecting value"),
        ("3", "not an object"),
        ("[]", "not an object"),
        ("[" * 4096, "Offbeat-Update"),  # too deep for some versions of Python, incomplete for others
        ('{"a":' * 800, "Expecting value"),
        ("1" * 4097, "at most 4096 characters"),
        ("\ufeff{}", "BOM"),
        (json.dumps(HEAD)[:-1] + ', "steps": 10}', "repeated"),
        (json.dumps(HEAD) + "{}", "Extra data"),
        (json.dumps(HEAD | {"colour": 1}), "unknown key 'colour'"),
        (json.dumps(HEAD | {"\ud800\n" * 100: 1}), "unknown key"),
    ],
)
def test_other_texts_are_refused(text: str | None, problem: str) -> None:
    assert problem in str(refusal(text))


def test_a_head_of_the_largest_size_is_read() -> None:
    parse_header(json.dumps(HEAD).ljust(4096))
    assert "at most 4096" in str(refusal(json.dumps(HEAD).ljust(4097)))


@given(st.text() | st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_refused_or_read(text: str) -> None:
    refusal(text)


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.sampled_from(sorted(HEAD)), values)
def test_any_value_is_refused_or_read_as_it_is(key: str, value: Any) -> None:
    text = json.dumps(HEAD | {key: value})
    try:
        head = parse_header(text)
    except Refusal:
        refusal(text)
    else:
        assert head == UpdateHeader(**HEAD | {key: value})


RECORD = bytes(range(256))[:200] + bytes(RECORD_BYTES - 200)
SHARE: dict[str, Any] = {
    "version": 12,
    "bytes": 24,
    "sha256": "9f" * 32,
    "since": None,
    "salt": "0e" * 32,
    "share": base64.b64encode(RECORD).decode(),
}
PLAN = LocalPlan(steps=4, batch_size=1, lr=0.5, momentum=0.5)


def test_the_header_of_a_share_has_its_record() -> None:
    header = parse_header(json.dumps(SHARE))
    assert isinstance(header, ShareHeader)
    assert (header.share, header.salt) == (RECORD, "0e" * 32)
    assert header == parse_header(json.dumps({key: value for key, value in SHARE.items() if key != "since"}))


@pytest.mark.parametrize("key", ["examples", "steps", "normaliser", "step_seconds", "upload_seconds", "loss"])
def test_a_share_comes_without_a_report(key: str) -> None:
    assert f"unknown key '{key}': allowed beside a share are" in str(refusal(json.dumps(SHARE | {key: HEAD[key]})))


@pairs({
    "since": [-1, 0.5],
    "salt": [None, "0e" * 31, "0E" * 32],
    "share": [None, 7, "", "*", SHARE["share"] + "AAAA", SHARE["share"][:-4], "ü"],
})  # fmt: skip
def test_a_share_that_is_not_one_is_refused(key: str, value: object) -> None:
    assert f" {key} must be " in str(refusal(json.dumps(SHARE | {key: value})))


@pytest.mark.parametrize(
    ("head", "share", "since"), [(HEAD, None, 9), (SHARE, RECORD, None), (SHARE | {"since": 9}, RECORD, 9)]
)
def test_the_report_of_a_private_update_is_that_of_its_plan(head: Any, share: Any, since: Any) -> None:
    report = private_report(parse_header(json.dumps(head)), PLAN)
    assert report == {"examples": 1, "steps": 4, "normaliser": normaliser(PLAN), "since": since, "share": share}
