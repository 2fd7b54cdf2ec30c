"""A client's life: check in, download, train, upload, again and again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from offbeat_client.client_folder.identity import ClientFolder
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Backoff, Connection
from offbeat_client.http.enrolment import declare, identify, renew
from offbeat_client.participant import Participant
from offbeat_client.private_updates import private_updates
from offbeat_client.visit import Client, Evaluate, Fit
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import check_count
from offbeat_core.user_code_errors import user_code


def run_client(
    url: str,
    make_client: Callable[[int], Client | Fit],
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

    The process may be killed at any time; the same call then resumes.

    Args:
        url: The server's, such as ``https://host:8443``.
        make_client: Makes the user's client, an object with ``fit`` or a function, from the client's number.
        folder: The client's identity, its unacknowledged update and its memory; one for each client.
        enrolment_token: Needed as long as the folder holds no client.
        name: The client's name, for people.
        ca: A file with the certificates to trust; None for those of the system.
        visits: After how many acknowledged updates to stop; None for the end of the run.
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
            or the folder cannot be used.

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
            with user_code("making the client failed"):
                made = make_client(identity.client)
            measure = None if private is not None else _evaluate(made)
            participant = Participant(connection, folder, identity.client, _fit(made), measure, outbox, private)
            if private is None:
                connection.supports = _supports(made, measure)
                identity = declare(connection, home, identity, _examples(made))
            participant.introduce()
            counted = done = 0
            while visits is None or done < visits:
                if participant.finished:
                    if not stay:
                        break
                    participant.stay()
                identity = renew(connection, home, identity)
                receipt = participant.take_turn(is_last=done + 1 == visits)
                if receipt is not None:
                    done += 1
                    counted += receipt
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


def _examples(made: Client | Fit) -> int | None:
    """Return how many examples the user's client holds, None if it does not say."""
    examples: Any = getattr(made, "examples", None)
    if examples is None:
        return None
    try:
        return check_count("the client's examples", examples)
    except ValueError as error:
        raise OffbeatError(str(error)) from None


def _fit(made: Client | Fit) -> Fit:
    fit: Any = getattr(made, "fit", made)
    if not callable(fit):
        raise OffbeatError(
            f"what makes the client must return a function or an object with fit, got {type(made).__name__}"
        )
    return cast("Fit", fit)


def _evaluate(made: Client | Fit) -> Evaluate | None:
    """Return the client's ``evaluate``; None if it has none."""
    measure: Any = getattr(made, "evaluate", None)
    if measure is not None and not callable(measure):
        raise OffbeatError(f"the client's evaluate must be a function, got {type(measure).__name__}")
    return cast("Evaluate | None", measure)


def _supports(made: Client | Fit, measure: Evaluate | None) -> str:
    corrects = ["corrects_gradients", "keeps_regulariser"] if getattr(made, "corrects_gradients", False) is True else []
    return ", ".join(["needs_loss", *corrects, *([] if measure is None else ["evaluate"])])
