"""Sentences on what needs a person at a server of several runs."""

from collections.abc import Mapping, Sequence

_MOST_NAMES = 3  # of runs in a sentence


def host_problems(
    log_problem: str | None, failed: Mapping[str, str], at_work: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the problems of a server, the worst first; empty if it needs nobody.

    Args:
        log_problem: Why the server's own log cannot be written; None if it can.
        failed: Why each run that has failed did.
        at_work: The sentences of each other run; what several runs say is one sentence.
    """
    found: list[str] = []
    if log_problem is not None:
        found.append(f"The server's log cannot be written, so sites wait ({log_problem}): look at its disk")
    for name, problem in failed.items():
        found.append(f"{name} has failed ({problem}), and is opened again later: look at its file and the log")
    runs: dict[str, list[str]] = {}
    for name, sentences in at_work.items():
        for sentence in sentences:
            runs.setdefault(sentence, []).append(name)
    return [*found, *(f"{_listed(names)}: {sentence}" for sentence, names in runs.items())]


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more run{'' if more == 1 else 's'}"
    return f"{', '.join(names[:-1])} and {names[-1]}"
