"""The ``Offbeat-Update`` header, by clients, which are not trusted."""

import base64
import json
from typing import Annotated, Any

from offbeat_core.digests import DigestKind, has_blake3, named_digest
from offbeat_core.number_checks import LARGEST_COUNT, LARGEST_FLOAT32
from offbeat_private.masks.envelope import RECORD_BYTES
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from offbeat.service.refusal import Refusal


def read_object(text: str) -> dict[str, Any]:
    """Read one JSON object without repeated keys, or raise ``ValueError``."""
    try:
        values = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is repeated")
    return values


def shortened(text: str) -> str:
    """Return the beginning of a text, for one line of an error."""
    return ascii(text)[:40]


_MAX_CHARACTERS = 4096  # characters
_LARGEST_NUMBER = 2**63 - 1  # in the database

_Number = Annotated[int, Field(ge=0, le=_LARGEST_NUMBER, description="a whole number of at least 0")]
_Seconds = Annotated[
    Annotated[float, Field(ge=0)] | None, Field(description="a finite number of at least 0, null, or left out")
]


def _record(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError("not a text")
    return base64.b64decode(text, validate=True)


_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits in lower case")]
_Digits = Annotated[_Sha256 | None, Field(description="64 hexadecimal digits in lower case")]


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: _Number
    bytes: Annotated[int, Field(ge=1, le=_LARGEST_NUMBER, description="a whole number of at least 1")]


class UpdateHeader(_Header):
    """The content of an ``Offbeat-Update`` header; see ``docs/protocol.md``."""

    sha256: _Digits = None
    blake3: _Digits = None
    model_sha256: _Sha256
    examples: Annotated[int, Field(ge=1, le=LARGEST_COUNT, description=f"a whole number in 1 … {LARGEST_COUNT}")]
    steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT, description=f"a whole number in 0 … {LARGEST_COUNT}")]
    normaliser: Annotated[
        float, Field(ge=0, le=LARGEST_FLOAT32, description="a number of at least 0, finite in 32 bits")
    ]
    since: Annotated[_Number | None, Field(description="a whole number of at least 0, or null")]
    step_seconds: _Seconds = None
    upload_seconds: _Seconds = None
    loss: Annotated[
        Annotated[float, Field(ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)] | None,
        Field(description="a number that is finite in 32 bits, null, or left out"),
    ] = None

    @model_validator(mode="after")
    def _check_digest(self) -> "UpdateHeader":
        if (self.sha256 is None) == (self.blake3 is None):
            raise ValueError("one of sha256 and blake3 must be given")
        if self.blake3 is not None and not has_blake3():
            raise ValueError("this server knows no BLAKE3: send sha256")
        return self

    @property
    def digest_kind(self) -> DigestKind:
        """The name of the digest of the body."""
        return "sha256" if self.blake3 is None else "blake3"

    @property
    def digest(self) -> str:
        """The digest of the body; see ``offbeat_core.digests``."""
        return named_digest(self.digest_kind, self.blake3 or self.sha256 or "")


class ShareHeader(_Header):
    """The content of an ``Offbeat-Update`` header of a masked update.

    Nothing else is reported: it would be believed, and tell of the client's data.
    """

    sha256: _Sha256
    since: Annotated[_Number | None, Field(description="a whole number of at least 0, null, or left out")] = None
    salt: _Sha256
    share: Annotated[
        bytes,
        BeforeValidator(_record),
        PlainSerializer(lambda record: base64.b64encode(record).decode(), return_type=str, when_used="json"),
        Field(min_length=RECORD_BYTES, max_length=RECORD_BYTES, description=f"{RECORD_BYTES} bytes in base64"),
    ]

    @property
    def digest_kind(self) -> DigestKind:
        """The name of the digest, of which the share's commitment is made."""
        return "sha256"

    @property
    def digest(self) -> str:
        """The digest of the body."""
        return self.sha256


Header = UpdateHeader | ShareHeader


def parse_header(text: str | None) -> Header:
    """Parse a header; ``malformed-request`` if it is missing, long or wrong."""
    if text is None:
        raise _malformed("is missing: send one line of JSON that describes the update")
    if len(text) > _MAX_CHARACTERS:
        raise _malformed(f"must have at most {_MAX_CHARACTERS} characters, got {len(text)}")
    try:
        values = read_object(text)
    except ValueError as error:
        raise _malformed(f"must be one JSON object: {error}") from None
    kind = ShareHeader if "share" in values else UpdateHeader
    fields = kind.model_fields
    for key in values:
        if key not in fields:
            beside = " beside a share" if kind is ShareHeader else ""
            raise _malformed(f"has an unknown key {shortened(key)}: allowed{beside} are {', '.join(fields)}")
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        if not first["loc"]:
            raise _malformed(f"is wrong: {first['msg'].removeprefix('Value error, ')}") from None
        key = str(first["loc"][0])
        raise _malformed(f"is wrong: {key} must be {fields[key].description}") from None


def _malformed(problem: str) -> Refusal:
    return Refusal("malformed-request", f"the Offbeat-Update header {problem}")
