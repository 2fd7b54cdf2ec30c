"""The one exception that users see, hints at other names, names of settings."""

import difflib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar


class OffbeatError(Exception):
    """An error that the user can fix; one line says what is wrong and what to do.

    Examples:
        >>> try:
        ...     offbeat.write_report([], "report")
        ... except offbeat.OffbeatError as error:
        ...     print(error)
        there is no history to report on
    """

    @property
    def lines(self) -> tuple[str, ...]:
        """The errors, each of one line."""
        return (str(self),)


class MistakesError(OffbeatError):
    """Several mistakes at once, each of one line."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """The errors, each of one line."""
        return tuple(str(self).split("\n"))


class GiveUpError(OffbeatError):
    """A reason to give up one visit; the client takes part in the run further on.

    Examples:
        >>> def fit(model, visit):
        ...     if busy():  # yours
        ...         raise GiveUpError("the machine is in use")
    """


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return a hint with the nearest allowed word, if one is near, and all of them."""
    words = sorted(allowed)
    hint = hint_for_other_name(word, words)
    if hint is None:
        near = difflib.get_close_matches(word, words, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}Allowed: {', '.join(words)}"


# Names elsewhere, a name here, and a sentence; without one it is another name of the same thing.
_OTHER_NAMES = (
    ("learning_rate step_size client_lr local_lr eta", "lr", ""),
    ("learning_rate server_learning_rate global_lr", "server_lr", ""),
    ("local_epochs num_epochs client_epochs", "epochs", ""),
    ("local_steps num_steps iterations", "steps", ""),
    ("batch batchsize minibatch_size local_batch_size", "batch_size", ""),
    ("num_clients n_clients num_nodes num_supernodes", "clients", ""),
    ("rounds num_rounds max_rounds server_rounds num_server_rounds", "versions", ""),
    ("clients_per_round cohort_size", "cohort", ""),
    ("clients_per_round", "concurrency", ""),
    ("proximal_mu prox_mu rho", "mu", ""),
    ("linear logistic logistic_regression logreg", "softmax", ""),
    ("dense perceptron fully_connected", "mlp", ""),
    ("conv convnet lenet", "cnn", ""),
    ("ce nll log_loss crossentropyloss", "cross_entropy", ""),
    ("acc top1", "accuracy", ""),
    ("fedprox", "fedavg", "it is 'fedavg' with local.mu, the weight of the proximal term. "),
    ("fedsgd", "fedavg", "it is 'fedavg' with local.steps = 1. "),
    ("fedadam", "fedavg", "it is 'fedavg' with server_optimizer = { name = \"adam\" }. "),
    ("fedadagrad", "fedavg", "it is 'fedavg' with server_optimizer = { name = \"adagrad\" }. "),
    ("fedavgm", "fedavg", "it is 'fedavg' with server_optimizer = { name = \"momentum\" }. "),
)


def hint_for_other_name(word: str, allowed: Collection[str]) -> str | None:
    """Return a hint if an allowed name is called so elsewhere."""
    word = word.lower().replace("-", "_")
    for others, name, sentence in _OTHER_NAMES:
        if word in others.split() and name in allowed:
            return sentence or f"did you mean {name!r}? "
    return None


_names: ContextVar[Mapping[str, str] | None] = ContextVar("setting_names", default=None)


def setting(key: str) -> str:
    """Return the name by which the user knows a key such as ``stop.versions``."""
    return (_names.get() or {}).get(key, key)


@contextmanager
def settings_named(names: Mapping[str, str]) -> Generator[None]:
    """Give keys other names within the context.

    A table without a name has an empty one.
    """
    token = _names.set(names)
    try:
        yield
    finally:
        _names.reset(token)
