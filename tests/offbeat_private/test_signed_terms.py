import hashlib
import json
import math

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.local_plan import LocalPlan
from offbeat_private.signed_terms import SignedTerms, Terms, sign, verify


@pytest.fixture(scope="session")
def signed(make_terms, helper_key):
    return sign(make_terms(), helper_key).to_bytes()


def test_derived_values_by_hand(make_terms):
    terms = make_terms(bits=4, clip_norm=14.0, length=9, noise_multiplier=0)
    assert terms.largest == 7
    assert terms.step == 2.0
    assert terms.sensitivity == 14 + 2 * 3
    plan = LocalPlan(steps=3, batch_size=1, lr=0.1)
    assert [make_terms(normalise=value).divisor(plan) for value in (False, True)] == [1.0, 3.0]


def test_the_json_by_hand(make_terms, helper_key):
    terms = make_terms(clip_norm=1)
    text = (
        '{"bands":50,"bits":20,"buffer":10,"clip_norm":1.0,'
        f'"helper_key":"{helper_key.public_key().public_bytes_raw().hex()}","length":1000,'
        '"local":{"batch_size":32,"clip_norm":null,"lr":0.1,"lr_decay":null,"momentum":0.0,"most_steps":null,"mu":0.0,'
        '"optimizer":"sgd","smallest_lr":null,"steps":10,"weight_decay":0.0},'
        '"max_participations":10,"mechanism":"banded","min_clients":5,"min_separation":50,"noise_multiplier":3.77,'
        f'"normalise":false,"payload":"delta","run":"{"72" * 16}"}}'
    )
    assert terms.to_bytes() == text.encode()
    assert terms.digest == hashlib.sha256(text.encode()).digest()
    assert Terms.from_bytes(text.encode()) == terms


@given(
    st.integers(2, 24),
    st.floats(1e-9, 1e9),
    st.floats(0, 1e3),
    st.integers(1, 2**31 - 1),
    st.integers(1, 2**31 - 1),
    st.binary(min_size=16, max_size=16),
)
def test_terms_survive_their_json(make_terms, bits, clip_norm, noise, length, separation, run):
    try:
        terms = make_terms(
            bits=bits, clip_norm=clip_norm, noise_multiplier=noise, length=length, min_separation=separation,
            bands=separation, run=run,
        )  # fmt: skip
    except ValueError as error:
        assert "could overflow" in str(error)  # noqa: PT017 - many of these sums would
        return
    assert Terms.from_bytes(terms.to_bytes()) == terms


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"run": bytes(15)}, "run must have 16 bytes, got 15"),
        ({"helper_key": bytes(33)}, "helper_key must have 32 bytes, got 33"),
        ({"length": 2**31}, "length must be at most"),
        *(
            ({name: 0}, f"{name} must be a whole number of at least 1")
            for name in ("max_participations", "min_separation")
        ),
        *(({"buffer": value}, "buffer must be a whole number") for value in (10.0, True)),
        *(({"min_clients": value}, rf"min_clients must be in 2 … 10 \(buffer\), got {value}") for value in (1, 11)),
        *(({"clip_norm": value}, "clip_norm must be in 1e-9 … 1e9, got") for value in (0.0, math.inf, math.nan)),
        ({"noise_multiplier": -0.1}, "noise_multiplier must not be negative"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be finite"),
        ({"mechanism": "other"}, "mechanism must be 'independent' or 'banded', got 'other'"),
        ({"bands": 51}, "bands of banded noise must be at most 50, got 51"),
        ({"mechanism": "independent", "bands": 2}, "bands of independent noise must be at most 1, got 2"),
        ({"payload": "params"}, "payload must be 'delta' or 'difference', got 'params'"),
        ({"payload": "difference"}, "noise_multiplier must be 0 with payload = 'difference': the noise of all batches"),
        ({"normalise": 1}, "normalise must be true or false, got 1"),
        *(({"bits": value, "noise_multiplier": 0}, f"bits must be in 2 … 24, got {value}") for value in (1, 25)),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(make_terms, changed, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_terms(**changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "most", "more", "name"),
    [
        # 20 bits: 2³⁰ / (2¹⁹ − 1) = 2,048.004: K + 10 s may be 2,048; half as much for differences.
        ({"noise_multiplier": 0, "length": 1}, {"buffer": 2048}, {"buffer": 2049}, "a sum of 2049 updates of 20 bits"),
        ({"buffer": 48, "length": 1}, {"noise_multiplier": 200}, {"noise_multiplier": 200.1}, r"200\.1 clip"),
        (
            {"noise_multiplier": 0, "payload": "difference"},
            {"buffer": 1024},
            {"buffer": 1025},
            "a sum of 1025 updates of 20 bits",
        ),
    ],
)
def test_sums_that_could_overflow_are_refused(make_terms, values, most, more, name):
    values = {"bits": 20, "min_clients": 2} | values
    make_terms(**values | most)
    with pytest.raises(ValueError, match=f"{name}.*could overflow"):
        make_terms(**values | more)


def test_noise_for_the_rounding_counts_in_the_overflow(make_terms):
    # 8 bits, d = 10⁶: the largest norm is 1 + 1000/127 = 8.87 clip norms, so that K + 10 s = 10 + 10 · 95,000 · 8.87 =
    # 8.43 million; 2³⁰/127 = 8.45 million.
    make_terms(noise_multiplier=95_000, bits=8, length=10**6)
    with pytest.raises(ValueError, match="could overflow"):
        make_terms(noise_multiplier=96_000, bits=8, length=10**6)


def test_rows_of_banded_noise_are_larger(make_terms):
    terms = make_terms(buffer=48, noise_multiplier=100, length=1)
    terms.check_overflow(1.99)
    with pytest.raises(ValueError, match="noise of 201 clip norms could overflow"):
        terms.check_overflow(2.01)


def test_a_signed_file_is_read_back(make_terms, helper_key, signed):
    terms = make_terms()
    read = verify(signed)
    assert read == SignedTerms(terms, read.signature)
    file = json.loads(signed)
    assert sorted(file) == ["signature", "terms"]
    assert file["terms"].encode() == terms.to_bytes()
    helper_key.public_key().verify(bytes.fromhex(file["signature"]), b"offbeat-terms-v1" + terms.to_bytes())


def test_the_delta_of_reports_is_in_the_file_but_not_in_the_terms(make_terms, helper_key, signed):
    content = sign(make_terms(), helper_key, 1e-6).to_bytes()
    assert verify(content) == verify(signed)._replace(delta=1e-6)
    assert verify(content).to_bytes() == content
    for wrong in (b"0.0", b"1.0", b"NaN", b"1", b'"1e-6"', b"true"):
        with pytest.raises(ValueError, match=r"^its delta must be between 0 and 1, got "):
            verify(content.replace(b"1e-06", wrong))


def test_a_file_has_a_largest_size(signed):
    assert verify(signed.ljust(4096)) == verify(signed)
    with pytest.raises(ValueError, match=r"^the enrolment file must have at most 4096 bytes, got 4097$"):
        verify(signed.ljust(4097))


def test_only_the_helper_signs(make_terms):
    with pytest.raises(ValueError, match="the signing key does not belong to the helper_key of the terms"):
        sign(make_terms(), Ed25519PrivateKey.generate())


def test_no_byte_of_the_file_can_be_changed(make_terms, signed):
    for bit in range(0, 8 * len(signed), 5):  # at least one of each byte, and by turns each
        changed = bytearray(signed)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            read = verify(bytes(changed))
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert read == verify(signed)  # white space between the texts, or the case of a digit


def test_changed_terms_need_another_signature(make_terms, signed):
    weaker = make_terms(noise_multiplier=3.76).to_bytes().decode()
    file = json.loads(signed) | {"terms": weaker}
    with pytest.raises(ValueError, match="its signature does not fit its terms"):
        verify(json.dumps(file).encode())


def test_terms_have_one_form_only(make_terms):
    content = make_terms().to_bytes()
    values = json.loads(content)
    for other in (
        json.dumps(values).encode(),  # spaces
        content.replace(b'"clip_norm":1.0', b'"clip_norm":1'),
        content.replace(b'"clip_norm":1.0', b'"clip_norm":1.00'),
        content.replace(b'"clip_norm":1.0', b'"clip_norm":true'),
        content.replace(b'{"bands"', b'{"bands":1,"bands"'),
        content.replace(b'"run":"72', b'"run":" 72'),
        content + b"\n",
        content.decode().encode("utf-16"),
    ):
        with pytest.raises(ValueError, match="its terms are not in canonical form"):
            Terms.from_bytes(other)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"\xff", b"{}", b"[" * 4000, b'{"terms":1,"signature":""}',
        b'{"terms":"{}","signature":"00"}', b'{"terms":"\\ud800","signature":"00"}', b'{"terms":[],"signature":{}}',
        b'{"terms":"[]"}', b" " * 4097, b'{"a":' + b"9" * 4000 + b"}",
    ],
)  # fmt: skip
def test_other_content_is_refused_in_one_line(content):
    for read in (verify, Terms.from_bytes):
        with pytest.raises(ValueError, match=r"^[^\n]{5,150}$"):
            read(content)


VALUES = [None, "1", [], {}, -1, 1e400, True, "ü", 10**30]


@pytest.mark.parametrize("value", VALUES)
def test_each_value_of_any_type_is_read_or_refused(make_terms, value):
    values = json.loads(make_terms().to_bytes())
    for name in values.keys() - ({"normalise"} if value is True else set()):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            Terms.from_bytes(json.dumps(values | {name: value}, sort_keys=True, separators=(",", ":")).encode())
    for other in ({**values, "more": value}, {name: values[name] for name in values if name != "bits"}):
        with pytest.raises(ValueError, match="missing, unknown or malformed values"):
            Terms.from_bytes(json.dumps(other).encode())


def test_terms_of_differences_say_so(make_terms):
    assert make_terms(payload="delta") == make_terms()
    differences = make_terms(payload="difference", noise_multiplier=0.0)
    assert b'"payload":"difference","run"' in differences.to_bytes()
    assert Terms.from_bytes(differences.to_bytes()) == differences
    assert differences.digest != make_terms(noise_multiplier=0.0).digest


@pytest.mark.parametrize("value", [*VALUES, {"name": "exponential"}, {"name": []}, [1], 10**400])
def test_each_value_of_the_plan_is_read_or_refused(make_terms, value):
    values = json.loads(make_terms().to_bytes())
    for name in values["local"]:
        local = values["local"] | {name: value}
        content = json.dumps(values | {"local": local}, sort_keys=True, separators=(",", ":")).encode()
        try:
            terms = Terms.from_bytes(content)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert terms.to_bytes() == content
