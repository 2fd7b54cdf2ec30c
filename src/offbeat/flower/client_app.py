"""A Flower ClientApp: its state, its training, and as a client of the service."""

# pyright: reportMissingImports=false

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from flwr.app import DEFAULT_TTL, Array, ArrayRecord, Context, Message, MessageType, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictMessage
from numpy.typing import NDArray
from offbeat_client.visit import Fitted, Visit
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.local_plan import LocalPlan
from offbeat_core.user_code_errors import user_code
from torch import Tensor

from offbeat.flower.model_arrays import Arrays, ModelArrays
from offbeat.flower.records import ReplyError, read_trained, train_content

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


_RUN = 1  # apps see it in their context; there is one run in a process
_SERVER = 1  # Flower's number of the server's node


class AppResult(NamedTuple):
    """The result of an app's training.

    Attributes:
        model: The run's parameters, by name.
        examples: How many examples the client holds.
        loss: The mean training loss; None if the app does not say.
        state: The app's state for the client, once the update counts.
    """

    model: dict[str, NDArray[Any]]
    examples: int
    loss: float | None
    state: bytes


class FlowerApp:
    """A user's ClientApp, unmodified.

    Args:
        app: The app.
        run_config: ``Context.run_config``.
        node_config: ``Context.node_config``; ``partition-id`` is the client's number unless it is given.
        model: The arrays of the app's model, if there are others than the run's parameters: each client keeps those.

    Raises:
        OffbeatError: The app is not a ClientApp.
    """

    def __init__(
        self,
        app: Any,
        *,
        run_config: Mapping[str, Any],
        node_config: Mapping[str, Any],
        model: ModelArrays | None = None,
    ) -> None:
        if not isinstance(app, ClientApp):
            raise OffbeatError(f"the app must be a flwr.clientapp.ClientApp, but is a {type(app).__name__}")
        self._app = app
        self._run_config = dict(run_config)
        self._node_config = dict(node_config)
        self._model = model
        self._has_client_fn = app._call is not None  # it has no public name

    def train(
        self,
        client: int,
        model: Mapping[str, NDArray[np.float32]],
        plan: LocalPlan,
        version: int,
        state: bytes | None,
    ) -> AppResult:
        """Let the app train a client.

        The seam for ``evaluate``: the same call with a message of that type, whose reply has metrics only.

        Args:
            client: The client's number.
            model: The model's parameters, which are not changed.
            plan: The visit's plan.
            version: The model's version.
            state: The app's state after the client's last counted update.

        Raises:
            ReplyError: The reply is an error, or not a training result.
            Exception: The app's own.
        """
        last = AppState() if state is None else AppState.from_bytes(state)
        arrays = dict(model) if self._model is None else self._model.complete(model, last.own)
        context = Context(
            run_id=_RUN,
            node_id=client,
            node_config={"partition-id": client, **self._node_config},
            state=last.records,
            run_config=dict(self._run_config),
        )
        content = train_content(arrays, plan, version, client_fn=self._has_client_fn)
        reply: Any = self._app(_message(client, version, MessageType.TRAIN, content), context)
        if not isinstance(reply, Message):
            raise ReplyError(f"the app must return a Message, it returned a {type(reply).__name__}")
        if reply.has_error():
            raise ReplyError(f"the app replied with error {reply.error.code}: {reply.error.reason}")
        trained = read_trained(reply.content, arrays, {name: array.shape for name, array in model.items()})
        own = {} if self._model is None else last.own | self._model.own(trained.arrays)
        parameters = {name: trained.arrays[name] for name in model}
        return AppResult(parameters, trained.examples, trained.loss, AppState(context.state, own).to_bytes())


def _message(client: int, version: int, kind: str, content: RecordDict) -> Message:
    # Without metadata of its own, a message wants to know the run from Flower's processes.
    metadata = Metadata(
        run_id=_RUN,
        message_id=f"{client}-{version}",
        src_node_id=_SERVER,
        dst_node_id=client,
        reply_to_message_id="",
        group_id=str(version),
        created_at=time.time(),
        ttl=DEFAULT_TTL,
        message_type=kind,
    )
    return Message(content=content, metadata=metadata)


class FlowerClient:
    """A client whose visits an app trains.

    An app that fails before it has trained once in this process is taken for a mistake, which ends the client. Later
    failures give up the visit, as a SuperNode survives them.
    """

    def __init__(self, app: FlowerApp) -> None:
        self._app = app
        self._has_trained = False

    def fit(self, model: dict[str, Tensor], visit: Visit[Tensor]) -> Fitted:
        """Let the app train.

        Raises:
            OffbeatError: The app failed before it has trained once.
            GiveUpError: It failed later.
        """
        arrays = {name: tensor.numpy() for name, tensor in model.items()}
        try:
            with user_code(f"visit {visit.number}: the Flower app failed"):
                result = self._app.train(visit.client, arrays, visit.plan, visit.version, visit.state)
        except OffbeatError as error:
            if self._has_trained:
                raise GiveUpError(str(error)) from error
            is_setting = isinstance(error.__cause__, KeyError)
            raise OffbeatError(f"{error}{_SETTINGS_HINT if is_setting else ''}") from error
        self._has_trained = True
        return Fitted(result.model, result.examples, loss=result.loss, state=result.state)


_SETTINGS_HINT = ": if that is a setting, give it with --node-config or --run-config"
