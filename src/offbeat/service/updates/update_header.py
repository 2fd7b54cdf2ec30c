"""The ``Offbeat-Update`` header: what a client says of an update; nothing in it is trusted."""

from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offbeat.algorithms.components.checks import LARGEST_COUNT
from offbeat.service.refusal import Refusal
from offbeat.service.updates.strict_json import read_object, shortened

_LARGEST_HEAD = 4096  # characters
_LARGEST_NUMBER = 2**63 - 1  # that a database holds
_LARGEST_FLOAT = torch.finfo(torch.float32).max

_Number = Annotated[int, Field(ge=0, le=_LARGEST_NUMBER, description="a whole number of at least 0")]
_Seconds = Annotated[
    Annotated[float, Field(ge=0)] | None, Field(description="a finite number of at least 0, null, or left out")
]


class UpdateHead(BaseModel):
    """What the ``Offbeat-Update`` header says of an update; see ``docs/protocol.md``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: _Number
    bytes: Annotated[int, Field(ge=1, le=_LARGEST_NUMBER, description="a whole number of at least 1")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits in lower case")]
    examples: Annotated[int, Field(ge=1, le=LARGEST_COUNT, description=f"a whole number in 1 … {LARGEST_COUNT}")]
    steps: Annotated[int, Field(ge=0, le=LARGEST_COUNT, description=f"a whole number in 0 … {LARGEST_COUNT}")]
    normaliser: Annotated[
        float, Field(ge=0, le=_LARGEST_FLOAT, description="a number of at least 0, finite in 32 bits")
    ]
    since: Annotated[_Number | None, Field(description="a whole number of at least 0, or null")]
    step_seconds: _Seconds = None
    upload_seconds: _Seconds = None
    loss: Annotated[
        Annotated[float, Field(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)] | None,
        Field(description="a number that is finite in 32 bits, null, or left out"),
    ] = None


def parse_head(text: str | None) -> UpdateHead:
    """Return what the header says.

    Raises:
        Refusal: ``malformed-request``: it is missing, longer than 4096 characters, or not what the protocol says.
    """
    if text is None:
        raise _bad_head("is missing: send one line of JSON that describes the update")
    if len(text) > _LARGEST_HEAD:
        raise _bad_head(f"must have at most {_LARGEST_HEAD} characters, got {len(text)}")
    try:
        values = read_object(text)
    except ValueError as error:
        raise _bad_head(f"must be one JSON object: {error}") from None
    for key in values:
        if key not in UpdateHead.model_fields:
            raise _bad_head(f"has an unknown key {shortened(key)}: allowed are {', '.join(UpdateHead.model_fields)}")
    try:
        return UpdateHead.model_validate(values)
    except ValidationError as error:
        key = str(error.errors(include_input=False)[0]["loc"][0])
        raise _bad_head(f"is wrong: {key} must be {UpdateHead.model_fields[key].description}") from None


def _bad_head(problem: str) -> Refusal:
    return Refusal("malformed-request", f"the Offbeat-Update header {problem}")
