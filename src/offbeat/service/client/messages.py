"""The server's answers, read with care: what this version does not understand is refused, not guessed."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from offbeat.algorithms.components import Compression, LocalPlan
from offbeat.errors import OffbeatError
from offbeat.service.client.contract import Visit
from offbeat.training.sending import check_sending


@dataclass(frozen=True, slots=True)
class CheckIn:
    """The answer to a check-in.

    Attributes:
        visit: The client's work; None if there is none now.
        retry_after_seconds: When to come back.
        finished: Whether the run is over.
    """

    visit: Visit | None
    retry_after_seconds: float
    finished: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """What the server wants to be measured.

    Attributes:
        visit: What a first visit of one step would be; nothing of it is handed in.
        upload_bytes: How many bytes to upload.
    """

    visit: Visit
    upload_bytes: int


@dataclass(frozen=True, slots=True)
class UploadState:
    """How far an upload is.

    Attributes:
        wanted: Whether the update would count.
        offset: How many bytes of its body have arrived.
        counted: Whether it counted; None while it has no receipt.
        following: The client's next visit, or that the run is over; None if nothing was said of that.
    """

    wanted: bool
    offset: int
    counted: bool | None
    following: CheckIn | None = None


@contextmanager
def understanding(what: str) -> Generator[None]:
    """Turn what goes wrong while an answer is read into one line."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise OffbeatError(
            f"the server's {what} is not understood ({type(error).__name__}: {error}): "
            "is this version of Offbeat as new as the server's?"
        ) from error


def read_check_in(answer: Mapping[str, Any], client: int) -> CheckIn:
    """Return the answer to a check-in of this client.

    Raises:
        OffbeatError: It is not understood.
    """
    with understanding("answer to a check-in"):
        visit = None if answer["visit"] is None else _read_visit(answer["visit"], client)
        return CheckIn(visit, float(answer["retry_after_seconds"] or 0.0), bool(answer["finished"]))


def read_probe(answer: Mapping[str, Any], client: int) -> Probe | None:
    """Return what the server wants to be measured of this client; None if that is nothing.

    Raises:
        OffbeatError: It is not understood.
    """
    with understanding("answer about a probe"):
        if answer["probe"] is None:
            return None
        visit, upload_bytes = _read_visit(answer["probe"], client), int(answer["upload_bytes"])
        if upload_bytes < 1:
            raise ValueError(f"upload_bytes is {upload_bytes}")
        return Probe(visit, upload_bytes)


def read_upload_state(answer: Mapping[str, Any], client: int) -> UploadState:
    """Return how far an upload of this client is, from either form of answer.

    Raises:
        OffbeatError: It is not understood.
    """
    with understanding("answer about an upload"):
        receipt = answer.get("receipt")
        counted = None if receipt is None else bool(receipt["counted"])
        following = None if answer.get("next") is None else read_check_in(answer["next"], client)
        return UploadState(bool(answer.get("wanted", True)), int(answer.get("offset", 0)), counted, following)


def _read_visit(data: Mapping[str, Any], client: int) -> Visit:
    plan = _read_plan(data["plan"])
    # A payload or a compressor that is unknown fails here, before any training.
    if data["payload"] not in ("delta", "params", "difference"):
        raise ValueError(f"unknown payload {data['payload']!r}")
    check_sending(data["payload"], plan, data["length"])
    visit = Visit(
        client=client,
        number=int(data["number"]),
        version=int(data["version"]),
        since=None if data["since"] is None else int(data["since"]),
        payload=data["payload"],
        length=int(data["length"]),
        seed=int(data["seed"]),
        plan=plan,
        lease_seconds=None if data["lease_seconds"] is None else float(data["lease_seconds"]),
        # Servers of protocol 1.1 do not say these.
        needs_loss=bool(data.get("needs_loss")),
        corrects_gradients=bool(data.get("corrects_gradients")),
    )
    if data["urgent"]:
        visit.urgent.set()
    return visit


def _read_plan(data: Mapping[str, Any]) -> LocalPlan:
    values = dict(data)
    if isinstance(values["lr"], list):
        values["lr"] = tuple(values["lr"])
    if (compression := values.get("compression")) is not None:
        values["compression"] = Compression(compression["name"], tuple(compression["parameters"].items()))
    return LocalPlan(**values)
