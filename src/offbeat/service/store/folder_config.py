"""The configuration of the run that a server's folder holds."""

import json
import secrets
from typing import Any

import sqlalchemy as sa

from offbeat.errors import OffbeatError
from offbeat.service.store.database import meta
from offbeat.service.store.store import Store


def check_config(store: Store, config: dict[str, Any]) -> str:
    """Return the id of the store's run, a new one if the store does not hold a run.

    Args:
        store: The folder.
        config: The run's configuration.

    Raises:
        OffbeatError: The folder holds a run with other settings.
    """
    found, wanted = store.get_meta("config"), json.dumps(config, sort_keys=True)
    if found is None:
        with store.database.begin() as connection:
            values = {"config": wanted, "run": secrets.token_hex(8)}
            connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in values.items()])
    elif found != wanted:
        before = json.loads(found)
        keys = sorted(key for key in {*before, *config} if before.get(key) != config.get(key))
        raise OffbeatError(
            f"{store.folder} holds a run with other settings ({', '.join(keys)}): take another service.folder, or the "
            "settings that it was begun with"
        )
    return store.get_meta("run") or ""
