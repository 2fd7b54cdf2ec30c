"""The admin's JSON bodies."""

from typing import Annotated, Any, Literal

from offbeat_core.messages import Answer, Request
from offbeat_core.name_check import Name
from offbeat_core.number_checks import LARGEST_COUNT
from pydantic import AfterValidator, Field

from offbeat.service.client_evaluation.evaluation_round import RoundSummary
from offbeat.service.engine.privacy_status import PrivacyStatus
from offbeat.service.store.client_tally import ListedClient


def _check_not_blank(name: str) -> str:
    if not name.strip():
        raise ValueError("a name has at least one character that is not a space")
    return name


SiteName = Annotated[Name, AfterValidator(_check_not_blank)]
"""A client's name that an admin chooses; clients may choose others when they enrol."""


class NewToken(Request):
    """A new token's kind, and its limits, null for none.

    Only enrolment tokens have uses.
    """

    kind: Literal["enrolment", "viewer", "operator", "admin"]
    uses: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    expires_seconds: Annotated[float, Field(gt=0, le=1e10)] | None = None
    name: Name = ""


class MadeToken(Answer):
    """A new token, and its id in the list of tokens."""

    token: str
    id: str


class ListedToken(Answer):
    """A token, without the token itself.

    ``labels`` are those of the sites that enrol with it, at a server of several runs.
    """

    id: str
    kind: str
    name: str
    state: str
    uses: int | None
    expires_seconds: float | None
    labels: list[str]


class Tokens(Answer):
    """All tokens but the clients'."""

    tokens: list[ListedToken]


class NewName(Request):
    """Another name for a client."""

    name: SiteName


class Extension(Request):
    """The version at which the run is to end."""

    versions: Annotated[int, Field(ge=1, le=LARGEST_COUNT)]


class Growth(Request):
    """The number of clients N of the run."""

    clients: Annotated[int, Field(ge=1, le=LARGEST_COUNT)]


class Paused(Answer):
    """The state of the run after a pause or its end."""

    paused: bool


class Extended(Answer):
    """The end of the run."""

    stop_versions: int | None
    finished: bool


class ClientPage(Answer):
    """Some of the clients, in the order of their numbers.

    ``total`` is the number of all clients. ``next`` is for the parameter ``after`` of the request for the next page;
    null on the last one.
    """

    total: int
    clients: list[ListedClient]
    next: int | None


class Forgotten(Answer):
    """Sentences on the deletion of a client's data, and on what stays.

    ``updates`` is how many of its updates no version will be made from.
    """

    client: int
    updates: int
    deleted: list[str]
    stays: list[str]


class LoggedEntry(Answer):
    """A line of the server's log, or an entry of its audit log.

    ``at`` is in Unix seconds.
    """

    number: int
    at: float
    level: str
    kind: str
    facts: dict[str, Any]


class LoggedPage(Answer):
    """Some entries, the last one first.

    ``next`` is for the parameter ``before`` of the request for earlier ones; null if there are none.
    """

    entries: list[LoggedEntry]
    next: int | None


class SiteHistory(Answer):
    """The newest updates of a site, and its evaluations, oldest first.

    An update is the run's seconds, whether it counted, and its staleness; an evaluation a version and its metrics.
    """

    updates: list[tuple[float, bool, int]]
    evaluations: list[tuple[int, dict[str, float]]]


class RunSettings(Answer):
    """The settings of a run.

    ``config`` is fixed; ``settings`` may change when the server starts.
    """

    version: str
    config: dict[str, Any]
    settings: dict[str, Any]


class Status(Answer):
    """The progress of a run; ``problems`` are sentences on what needs a person."""

    problems: list[str]
    algorithm: str
    version: int
    stop_versions: int | None
    finished: bool
    paused: bool
    enrolled: int
    clients: int
    waits_for: str | None
    waiting: int
    at_work: int
    assigned: int
    counted: int
    unused: int
    lost: int
    mean_staleness: float
    max_staleness: int
    refused_steps: int
    run_seconds: float
    evaluated: dict[str, Any] | None
    evaluated_by_clients: RoundSummary | None = None
    best: dict[str, Any] | None = None
    privacy: PrivacyStatus | None = None
