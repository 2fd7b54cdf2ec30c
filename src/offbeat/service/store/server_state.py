"""The state of a server beside its coordinator, as the log's records make it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError

from offbeat.service.accounts import registry
from offbeat.service.accounts.registry import Registry
from offbeat.service.store import database
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.store.database import LogRecord


class RunState:
    """The run as its file and an admin's commands have it; it changes by ``apply``.

    Attributes:
        run_id: The id of the run; None before it begins.
        config: The settings with which the run was begun, but for a later ``stop.versions``.
        is_paused: Whether nobody gets new work.
        extended_to: The version at which the run ends if an admin has extended it; else 0.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.run_id: str | None = None
        self.config: dict[str, Any] = {}
        self.is_paused = False
        self.extended_to = 0
        if state is not None:
            self.__dict__.update(state)

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self.__dict__)

    def apply(self, name: str, values: Mapping[str, Any]) -> None:
        """Make a change; its values are those of the log's record of this name."""
        match name:
            case "begin":
                self.run_id, self.config = values["run"], values["config"]
            case "configure":
                self.config = values["config"]
            case "pause" | "resume":
                self.is_paused = name == "pause"
            case "extend":
                self.extended_to = values["versions"]
            case _:
                raise ValueError(f"the run does not know the change {name!r}")

    @property
    def stop_versions(self) -> float:
        """The version at which the run ends; infinity if there is none."""
        return max(stop_versions(self.config), self.extended_to)


class ServerState:
    """The run, the clients and tokens, and the counts of visits, up to some record.

    Args:
        state: As ``state_dict`` returned it; None before the first record.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        state = state or {"run": None, "registry": None, "tally": ()}
        self.run = RunState(state["run"])
        self.registry = Registry(state["registry"])
        self.tally = ClientTally(state["tally"])

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "run": self.run.state_dict(),
            "registry": self.registry.state_dict(),
            "tally": self.tally.state_dict(),
        }

    def apply(self, record: LogRecord) -> None:
        """Make the change of the next record of the log.

        Raises:
            ValueError: The change does not follow from those before it. Also LookupError, TypeError.
        """
        match record.owner:
            case database.COORDINATOR:
                self.tally.note(record)
            case registry.OWNER:
                self.registry.apply(record.name, record.arguments)
            case database.RUN:
                self.run.apply(record.name, record.arguments)
            case _:  # another part's, which reads its records itself
                pass


def stop_versions(config: Mapping[str, Any]) -> float:
    """Return the version at which a run of this configuration ends."""
    return config.get("stop", {}).get("versions", math.inf)


def check_config(folder: Path, run: RunState, config: Mapping[str, Any]) -> None:
    """Raise ``OffbeatError`` if settings differ in more than a later end."""
    before = run.config
    if run.run_id is None or before == config:
        return
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
