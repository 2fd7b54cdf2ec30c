"""A Flower ClientApp as a client of the service."""

from offbeat_client.visit import Fitted, Visit
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.user_code_errors import user_code
from torch import Tensor

from offbeat.flower.app import FlowerApp


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
