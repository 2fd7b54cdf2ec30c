"""The privacy that clients have spent, over the runs of one or several servers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_private.accounting import composed_epsilon, spending

from offbeat.service.server import stopped_server
from offbeat.service.server.host_folder import host_of, run_folders
from offbeat.service.store.server_state import ServerState
from offbeat.service.store_settings import StoreSettings, noted_shared_store

_TRIES = 3  # a server that makes checkpoints deletes old ones


@dataclass(frozen=True)
class Spent:
    """The participations of a client, and what they add up to.

    ``spending`` is Σ participations / σ² over its runs; infinite if one is without noise.
    """

    runs: int = 0
    participations: int = 0
    spending: float = 0.0

    def after(self, participations: int, noise_multiplier: float) -> "Spent":
        """Return what it has spent after another run."""
        spent = self.spending + spending(noise_multiplier, participations)
        return Spent(self.runs + (participations > 0), self.participations + participations, spent)

    def epsilon(self, delta: float, *, replace_one: bool = False) -> float:
        """Return ε for δ."""
        return composed_epsilon(self.spending, delta, replace_one=replace_one)


@dataclass(frozen=True)
class SpentInRun:
    """The participations of a run's clients by identity, and the noise of its sums.

    ``delta`` is None if the run is not private.
    """

    participations: Mapping[str, int]
    noise_multiplier: float
    delta: float | None


def read_runs(folder: Path, store: StoreSettings | None = None) -> Iterator[SpentInRun]:
    """Yield what the runs of a server, which may go on, have cost its clients.

    Clients of one name count as one; one without a name is none of another run. On a server of several runs sites count
    by number, also with a helper.

    Raises:
        OffbeatError: A run cannot be read, or has a helper and a server of its own.
    """
    for run in run_folders(folder):
        state = _state(run, store)
        privacy = _privacy(state, run)
        participations: dict[str, int] = {}
        for number, site in state.registry.sites.items():
            identity = site.identity or f"client-{number} of {run}"
            participations[identity] = participations.get(identity, 0) + state.tally[number].counted
        yield SpentInRun(participations, privacy.get("noise_multiplier", 0.0), privacy.get("delta"))


def _state(folder: Path, store: StoreSettings | None) -> ServerState:
    if store is not None:
        from offbeat.service.server import shared_server  # which takes a second longer to import

        return shared_server.saved_state(store)
    for _ in range(_TRIES - 1):
        try:
            return stopped_server.saved_state(folder)[0]
        except (OffbeatError, OSError):
            continue
    return stopped_server.saved_state(folder)[0]


def _privacy(state: ServerState, folder: Path) -> Mapping[str, Any]:
    privacy = state.run.config.get("privacy") or {}
    if privacy.get("helper") is not None and not host_of(folder)[1]:
        raise OffbeatError(
            f"{folder} holds a run with a helper, which counts by key over all of its runs: use offbeat-helper status "
            "--clients there"
        )
    return privacy


def composed(runs: Iterable[SpentInRun]) -> dict[str, Spent]:
    """Return what each client has spent over runs, by its identity."""
    spent: dict[str, Spent] = {}
    for run in runs:
        for identity, participations in run.participations.items():
            spent[identity] = spent.get(identity, Spent()).after(participations, run.noise_multiplier)
    return spent


def spent_by_identity(folders: Iterable[Path]) -> dict[str, float]:
    """Return Σ participations / σ² of each client over the runs in servers' folders."""
    runs = (run for folder in folders for run in read_runs(folder, noted_shared_store(folder)))
    return {identity: spent.spending for identity, spent in composed(runs).items()}
