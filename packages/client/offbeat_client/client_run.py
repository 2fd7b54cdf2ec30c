"""A client's life: check in, download, train, upload, again and again."""

import time
from pathlib import Path

from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Backoff, Connection, jitter
from offbeat_client.http.enrolment import declare, identify, renew
from offbeat_client.participant import Participant
from offbeat_client.private_updates import private_updates
from offbeat_client.receipt_log import ReceiptLog
from offbeat_client.server_runs import ServerRuns
from offbeat_client.user_client import MakeClient, make_user_client
from offbeat_client.visit import Client, Fit
from offbeat_core.errors import OffbeatError

_STAY_SECONDS = 60.0  # between two questions whether a run that was over is extended


def run_client(
    url: str,
    make_client: MakeClient,
    folder: Path,
    *,
    enrolment_token: str | None = None,
    name: str | None = None,
    ca: Path | None = None,
    visits: int | None = None,
    stay: bool = False,
    backoff: Backoff | None = None,
    terms: Path | None = None,
    privacy_key: Path | None = None,
) -> int:
    """Take part in a run until it is over; models are numpy arrays by parameter name.

    The process may be killed at any time; the same call then resumes. At a server of several runs the client takes part
    in all that it is admitted to, one visit at a time. A run in which its code fails, or that refuses it for good, is
    logged, and the others go on.

    Args:
        url: The server's, such as ``https://host:8443``, or that of one of its runs, ``https://host:8443/runs/NAME``.
        make_client: Makes the user's client, an object with ``fit`` or a function, from the client's number. If it has
            a second parameter, which is called ``run`` or has no default, it gets the run's name at a server of several
            runs; the number is then another one in each.
        folder: The client's identity, its unacknowledged update and its memory; one for each client.
        enrolment_token: Needed as long as the folder holds no client.
        name: The client's name, for people.
        ca: A file with the certificates to trust; None for those of the system.
        visits: After how many acknowledged updates, of all runs, to stop; None for the end of the run.
        stay: Whether to ask about every minute after the end of the run, without end, and to go on if it is extended.
        backoff: When to try again if the server cannot be reached; by default, once the client has enrolled, without
            end, at least every 30 s.
        terms: The helper's file ``terms.json``. With it, only masked updates leave the client; it declares no examples
            and measures no speed for the server.
        privacy_key: The client's key; by default the one that ``offbeat client key`` made in the folder.

    Returns:
        How many updates of this call counted.

    Raises:
        OffbeatError: The server refuses the client or cannot be reached, the client's code fails, its memory is lost,
            or the folder cannot be used. Of several runs: all are over, and some have failed so.

    Examples:
        >>> def make_client(client):
        ...     return Hospital(client)  # yours, see ``Client``
        >>> counted = offbeat_client.run_client(
        ...     "https://host:8443", make_client, Path("aachen"), enrolment_token=token, ca=Path("ca.pem")
        ... )  # doctest: +SKIP
    """
    with ClientFolder(folder) as home, Connection(url, ca=ca, backoff=backoff) as connection:
        try:
            outbox = Outbox(folder)
            private = private_updates(folder, terms, privacy_key, outbox)
            connection.supports = "" if private is None else "privacy"
            identity = identify(connection, home, enrolment_token, name)
            if identity.has_runs:
                if private is not None:
                    run_url = f"{connection.url}/runs/NAME"
                    raise OffbeatError(f"{url} has several runs: with --terms join {run_url}, in another folder")
                turns = ServerRuns(connection, folder, make_client)
            else:
                made = make_user_client(make_client, identity.client)
                fit, measure = made.fit, None if private is not None else made.evaluate
                if private is None:
                    connection.supports = made.supports
                    identity = declare(connection, home, identity, made.examples)
                turns = Participant(connection, folder, identity.client, fit, measure, outbox, private)
                turns.introduce()
            counted = done = 0
            while visits is None or done < visits:
                if turns.finished:
                    if not stay:
                        break
                    _stay(turns.receipts)
                identity = renew(connection, home, identity)
                receipt = turns.take_turn(is_last=done + 1 == visits)
                if receipt is not None:
                    done += 1
                    counted += receipt
            if isinstance(turns, ServerRuns) and turns.finished:
                turns.check()
            return counted
        except OSError as error:
            raise OffbeatError(f"cannot use {folder}: {error.strerror or error}") from error


def run(
    url: str,
    fit: Client | Fit,
    folder: Path | str = "client",
    *,
    enrolment_token: str | None = None,
    name: str | None = None,
    ca: Path | str | None = None,
    visits: int | None = None,
    stay: bool = False,
) -> int:
    """Take part in a run with one function, until the run is over.

    ``fit(model, visit)`` maps numpy arrays by parameter name and a ``Visit`` to the trained arrays and the number of
    examples. For the rest see ``run_client``.

    Examples:
        >>> def fit(model, visit):
        ...     for _ in range(visit.plan.steps):
        ...         model["weight"] -= visit.plan.lr * gradient(model)  # yours
        ...     return model, 80
        >>> counted = offbeat_client.run("https://host:8443", fit, enrolment_token=token, ca="ca.pem")  # doctest: +SKIP
    """
    return run_client(
        url,
        lambda _: fit,
        Path(folder),
        enrolment_token=enrolment_token,
        name=name,
        ca=None if ca is None else Path(ca),
        visits=visits,
        stay=stay,
    )


def _stay(receipts: ReceiptLog) -> None:
    """Wait for about a minute after the end of a run, which may be extended."""
    receipts.note_idle("the run is over; the client stays, and asks every minute whether it is extended")
    # Clients whose run ended at one moment should not ask at one moment.
    time.sleep(_STAY_SECONDS / 2 + jitter(_STAY_SECONDS))
