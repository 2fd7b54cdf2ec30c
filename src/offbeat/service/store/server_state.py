"""The state of a server beside its coordinator, as the rows of the log make it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.service.accounts import registry
from offbeat.service.accounts.registry import AccountRegistry
from offbeat.service.audit.verification import LogHead
from offbeat.service.log import log
from offbeat.service.log.log import Row
from offbeat.service.store.client_tally import ClientTally


class RunState:
    """The run as its file and an admin's commands have it; it changes by ``apply``.

    Attributes:
        run_id: The id of the run; None before it begins.
        config: The settings with which the run was begun, but for a later ``stop.versions``.
        is_paused: Whether nobody gets new work.
        extended_to: The version at which the run ends if an admin has extended it; else 0.
        ended_at: The version at which an operator has ended the run, or to which it was extended then; None if nobody
            has ended it.
        clients: Number of clients N if it has grown since the run began; else None.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.run_id: str | None = None
        self.config: dict[str, Any] = {}
        self.is_paused = False
        self.extended_to = 0
        self.ended_at: int | None = None
        self.clients: int | None = None
        if state is not None:
            self.__dict__.update(state)

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self.__dict__)

    def apply(self, name: str, values: Mapping[str, Any]) -> None:
        """Make a change; its values are those of the log's row of this name."""
        match name:
            case "begin":
                self.run_id, self.config = values["run"], values["config"]
            case "configure":
                self.config = values["config"]
            case "pause" | "resume":
                self.is_paused = name == "pause"
            case "extend" if self.ended_at is None:
                self.extended_to = values["versions"]
            case "extend" | "end":
                self.ended_at = values["versions"]
            case _:
                raise ValueError(f"the run does not know the change {name!r}")

    @property
    def stop_versions(self) -> float:
        """The version at which the run ends; infinity if there is none."""
        return self.end_of(stop_versions(self.config))

    def end_of(self, versions: float) -> float:
        """Return the version at which a run ends whose file says ``versions``."""
        return max(versions, self.extended_to) if self.ended_at is None else self.ended_at


class ServerState:
    """The run, the clients and tokens, the counts of visits, the audit log's head.

    Args:
        state: As ``state_dict`` returned it; None before the first row.

    Attributes:
        best: The best version, the metric's name and value, and the SHA-256 of the model's file; None if none is kept.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {"run": None, "registry": None, "tally": (), "audit_head": (0, LogHead().digest)}
        self.run = RunState(state["run"])
        self.registry = AccountRegistry(state["registry"])
        self.tally = ClientTally(state["tally"])
        self.best: dict[str, Any] | None = state.get("best")
        self.audit_head = LogHead(*state["audit_head"])

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "run": self.run.state_dict(),
            "registry": self.registry.state_dict(),
            "tally": self.tally.state_dict(),
            "best": self.best,
            "audit_head": (self.audit_head.number, self.audit_head.digest),
        }

    def apply(self, row: Row, values: Mapping[str, Any]) -> None:
        """Make the change of the log's next row, whose arguments are ``values``.

        Raises:
            ValueError: The change does not follow from those before it. Also LookupError, TypeError.
        """
        if row.head is not None:
            self.audit_head = LogHead(self.audit_head.number + 1, row.head)
        match row.owner:
            case log.COORDINATOR:
                self.tally.note(row.name, values)
                if row.name == "grow":
                    self.run.clients = values["clients"]
            case registry.OWNER:
                self.registry.apply(row.name, values)
                if row.name == "forget_client":
                    self.tally.forget(values["client"])
            case log.RUN:
                self.run.apply(row.name, values)
            case log.BEST:
                self.best = dict(values)
            case _:  # another part's, which reads its rows itself
                pass


def stop_versions(config: Mapping[str, Any]) -> float:
    """Return the version at which a run of this configuration ends."""
    return config.get("stop", {}).get("versions", math.inf)


def check_config(folder: Path, run: RunState, config: Mapping[str, Any]) -> None:
    """Raise ``OffbeatError`` if settings differ in more than a later end."""
    before = run.config
    if run.run_id is None or before == config:
        return
    secret, ours = (each.get("privacy", {}).get("noise_secret") for each in (before, config))
    if secret and ours and secret != ours:
        raise OffbeatError(
            f"the noise of this run is made of another secret, of fingerprint {secret}: put noise-secret back into "
            f"{folder}, or copy the file of service.noise_secret from another server"
        )
    if _without_versions(before) != _without_versions(config):
        keys = sorted(key for key in {*before, *config} if before.get(key) != config.get(key))
        raise OffbeatError(
            f"{folder} holds a run with other settings ({', '.join(keys)}): take another service.folder, or "
            "the settings that it was begun with"
        )
    end = stop_versions(before)
    if stop_versions(config) <= end:
        held = "a run without stop.versions: leave it out"
        if math.isfinite(end):
            held = f"a run of {end} versions: stop.versions may only grow"
        raise OffbeatError(f"{folder} holds {held}")


def _without_versions(config: Mapping[str, Any]) -> dict[str, Any]:
    stop = {key: value for key, value in config.get("stop", {}).items() if key != "versions"}
    return {**config, "stop": stop}
