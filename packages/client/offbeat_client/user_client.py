"""The user's client, as ``make_client`` returned it."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, cast

from offbeat_client.visit import Client, Evaluate, Fit
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import check_count
from offbeat_core.user_code_errors import user_code

MakeClient = Callable[..., Client | Fit]
"""Makes the user's client from the client's number, and from the run's name if it takes one."""


@dataclass(frozen=True, slots=True)
class UserClient:
    """The parts of a user's client; ``OffbeatError`` from one that cannot be used."""

    made: Client | Fit

    @property
    def fit(self) -> Fit:
        """The function that trains."""
        fit: Any = getattr(self.made, "fit", self.made)
        if not callable(fit):
            raise OffbeatError(
                f"what makes the client must return a function or an object with fit, got {type(self.made).__name__}"
            )
        return cast("Fit", fit)

    @property
    def evaluate(self) -> Evaluate | None:
        """The function that measures a model; None for none."""
        measure: Any = getattr(self.made, "evaluate", None)
        if measure is not None and not callable(measure):
            raise OffbeatError(f"the client's evaluate must be a function, got {type(measure).__name__}")
        return cast("Evaluate | None", measure)

    @property
    def examples(self) -> int | None:
        """The number of examples that the client holds; None if it does not say."""
        examples: Any = getattr(self.made, "examples", None)
        if examples is None:
            return None
        try:
            return check_count("the client's examples", examples)
        except ValueError as error:
            raise OffbeatError(str(error)) from None

    @property
    def supports(self) -> str:
        """The client's abilities, with commas between them."""
        corrects = getattr(self.made, "corrects_gradients", False) is True
        names = ["needs_loss", *(["corrects_gradients", "keeps_regulariser"] if corrects else [])]
        return ", ".join([*names, *([] if self.evaluate is None else ["evaluate"])])


def make_user_client(make_client: MakeClient, client: int, run: str | None = None) -> UserClient:
    """Return the user's client with this number.

    ``run`` is the name of the run at a server of several.
    """
    arguments = (client, run) if run is not None and takes_run(make_client) else (client,)
    with user_code("making the client failed"):
        return UserClient(make_client(*arguments))


def takes_run(make_client: MakeClient) -> bool:
    """Return whether a function takes the run's name.

    Then its second parameter is called ``run``, or has no default.
    """
    try:
        second = list(signature(make_client).parameters.values())[1:2]
    except ValueError:  # of some that are written in C
        return False
    kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    return any(each.name == "run" or (each.default is each.empty and each.kind in kinds) for each in second)
