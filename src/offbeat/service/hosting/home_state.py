"""The state of a server of several runs, as the rows of its own log make it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offbeat.service.log.log import Row
from offbeat.service.store.server_state import ServerState

OWNER = "home"
"""The owner of the rows about runs and about sites' labels."""


@dataclass(slots=True)
class RunRecord:
    """A run of the server: the text of its file, and whether it is over."""

    text: str
    created: float  # Unix seconds
    is_over: bool = False


class HomeState:
    """Sites, tokens and runs; all changes are by ``apply``.

    Attributes:
        server: The sites, all tokens, and the head of the audit log.
        runs: By name.
        labels: Of each site.
        token_labels: Of the sites that enrol with a token, by its SHA-256.
        admitted: The runs that each site takes part in, or once did.
    """

    def __init__(self) -> None:
        self.server = ServerState()
        self.runs: dict[str, RunRecord] = {}
        self.labels: dict[int, frozenset[str]] = {}
        self.token_labels: dict[str, frozenset[str]] = {}
        self.admitted: dict[int, set[str]] = {}

    def apply(self, row: Row) -> None:
        """Make the change of the log's next row."""
        values = row.values
        self.server.apply(row, values)
        if row.owner == OWNER:
            self.change(row.name, values)

    def change(self, name: str, values: Mapping[str, Any]) -> None:
        """Make a change; its values are those of the log's row of this name."""
        match name:
            case "create_run":
                self.runs[values["run"]] = RunRecord(values["text"], values["at"])
            case "note_end":
                self.runs[values["run"]].is_over = values["is_over"]
            case "admit":
                self.admitted.setdefault(values["site"], set()).add(values["run"])
            case "label_site":
                self.labels[values["site"]] = frozenset(values["labels"])
            case "label_token":
                self.token_labels[values["token"]] = frozenset(values["labels"])
            case _:
                raise ValueError(f"the server does not know the change {name!r}")
