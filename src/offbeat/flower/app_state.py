"""The state of an app between two trainings of a client, as bytes."""

# pyright: reportMissingImports=false

from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictMessage
from numpy.typing import NDArray

from offbeat.flower.model_arrays import Arrays

_OWN, _STATE = "own", "state."


@dataclass(frozen=True)
class AppState:
    """The state of an app for one client.

    Attributes:
        records: Flower's ``Context.state``.
        own: Arrays of the app's model that are not parameters of the run, such as BatchNorm's statistics: the app is
            given those that it returned last.
    """

    records: RecordDict = field(default_factory=RecordDict)
    own: Arrays = field(default_factory=dict[str, "NDArray[Any]"])

    def to_bytes(self) -> bytes:
        """Return the state as bytes."""
        kept = RecordDict({_OWN: ArrayRecord({name: Array(array) for name, array in self.own.items()})})
        for name, record in self.records.items():
            kept[_STATE + name] = record
        return recorddict_to_proto(kept).SerializeToString()

    @staticmethod
    def from_bytes(data: bytes) -> "AppState":
        """Return the state that ``to_bytes`` has written."""
        kept = recorddict_from_proto(RecordDictMessage.FromString(data))
        own = {name: array.numpy() for name, array in kept[_OWN].items()}
        records = {name.removeprefix(_STATE): record for name, record in kept.items() if name.startswith(_STATE)}
        return AppState(RecordDict(records), own)
