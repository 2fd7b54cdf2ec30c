"""Who the client is: enrolled once, and its token renewed before it ends."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from offbeat.errors import OffbeatError
from offbeat.service.client.connection import Connection
from offbeat.service.client.folder import Folder, Identity
from offbeat.service.client.messages import understanding
from offbeat.service.client.refusal import ServiceError
from offbeat.service.client.retry import Backoff

_FIRST_ATTEMPTS = 6

_log = logging.getLogger(__name__)


def identify(connection: Connection, folder: Folder, enrolment_token: str | None, name: str | None) -> Identity:
    """Return who the client is, enrolled if need be; from then on the connection speaks for it.

    Args:
        connection: To the server.
        folder: Where the client's name and token are kept.
        enrolment_token: Needed unless the folder has them.
        name: For people.

    Raises:
        OffbeatError: There is no token, the server refuses it, or it cannot be reached for the first time.
    """
    identity = folder.identity(connection.url)
    if identity is None:
        if enrolment_token is None:
            raise OffbeatError(f"no client has enrolled in {folder.path}: give an enrolment token with --token-file")
        connection.token = enrolment_token
        wanted = {"token": folder.own_token(), **({} if name is None else {"name": name})}
        answer = connection.ask("POST", "/v1/enrol", wanted, backoff=_first_contact(connection.backoff))
        with understanding("answer to an enrolment"):
            client = int(answer["client"])
        identity = _keep(connection, folder, client, answer)
        _log.info("enrolled as client %d", client)
    connection.token = identity.token
    return identity


def renew(connection: Connection, folder: Folder, identity: Identity) -> Identity:
    """Return who the client is, with another token if half the life of this one is over.

    Raises:
        OffbeatError: The server refuses.
    """
    if identity.renew_at is None or time.time() < identity.renew_at:
        return identity
    identity = _keep(connection, folder, identity.client, connection.ask("POST", "/v1/token"), identity.examples)
    # The old one ends when the new one is first used, which is on disk by now.
    connection.token = identity.token
    return identity


def declare(connection: Connection, folder: Folder, identity: Identity, examples: int | None) -> Identity:
    """Tell the server how many examples the client holds, unless it knows.

    Args:
        connection: To the server, which speaks for the client.
        folder: The client's.
        identity: Who the client is.
        examples: How many; None if the client does not say.

    Raises:
        OffbeatError: The server refuses, for instance since it was another number before.
    """
    if examples is None or identity.examples == examples:
        return identity
    try:
        connection.ask("POST", "/v1/examples", {"examples": examples})
    except ServiceError as error:
        if error.kind != "not-found":  # an older server does not ask
            raise
        return identity
    declared = replace(identity, examples=examples)
    folder.keep_identity(declared)
    return declared


def _first_contact(backoff: Backoff) -> Backoff:
    """Return when to try again as long as the URL may be wrong: only for a while, so that somebody sees it."""
    most = _FIRST_ATTEMPTS if backoff.attempts is None else min(backoff.attempts, _FIRST_ATTEMPTS)
    return replace(backoff, attempts=most)


def _keep(
    connection: Connection, folder: Folder, client: int, answer: Mapping[str, Any], examples: int | None = None
) -> Identity:
    with understanding("answer with a token"):
        expires = answer["expires_seconds"]
        renew_at = None if expires is None else time.time() + expires / 2
        identity = Identity(connection.url, client, str(answer["token"]), renew_at, examples)
    folder.keep_identity(identity)
    return identity
