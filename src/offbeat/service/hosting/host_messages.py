"""The admin's JSON bodies of a server of several runs."""

from typing import Annotated

from offbeat_core.messages import MOST_RUNS, Answer, Request, RunName
from pydantic import Field

from offbeat.service import server_messages

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Labels = Annotated[tuple[Label, ...], Field(max_length=32)]

RUN_STATES = ("starting", "at work", "paused", "over", "failed")

LARGEST_FILE = 2**15
"""Characters of a run's file, at most."""


class NewSiteToken(server_messages.NewToken):
    """A new token; sites that enrol with one for enrolment get its labels."""

    labels: Labels = ()


class NewRun(Request):
    """A new run: its name, and the text of its TOML file."""

    name: RunName
    file: Annotated[str, Field(max_length=LARGEST_FILE)]


class NewLabels(Request):
    """Labels of a site in place of those that it has."""

    labels: Labels


class ListedRun(Answer):
    """A run of the server; most values are null while it is not open.

    ``state`` is one of ``RUN_STATES``; ``problem`` is its first one.
    """

    name: str
    created: float
    state: str
    problem: str | None
    algorithm: str | None = None
    version: int | None = None
    stop_versions: int | None = None
    enrolled: int | None = None
    clients: int | None = None
    waiting: int | None = None
    at_work: int | None = None
    counted: int | None = None


class ListedSite(Answer):
    """A site of the server, with the runs that it takes part in or once did."""

    site: int
    name: str
    enrolled: float
    revoked: float | None
    labels: list[str]
    runs: list[str]


class SitePage(Answer):
    """Some of the sites, in the order of their numbers; see ``ClientPage``."""

    total: int
    sites: list[ListedSite]
    next: int | None


class HostStatus(Answer):
    """The state of a server of several runs.

    ``problems`` are sentences on what needs a person.
    """

    problems: list[str]
    runs: Annotated[list[ListedRun], Field(max_length=MOST_RUNS)]
    sites: int
    revoked_sites: int
