"""The configuration of the run that a server's folder holds."""

import json
import secrets
from typing import Any

import sqlalchemy as sa

from offbeat.errors import OffbeatError
from offbeat.service.store import Store, meta

_NEW_KEYS = ("lease_seconds", "max_visit_seconds")  # of [server]


def check_config(store: Store, config: dict[str, Any], config_to_weigh: dict[str, Any] | None) -> str:
    """Return the name of the run; it is new if there is none in the store.

    Args:
        store: The folder.
        config: The run's configuration.
        config_to_weigh: Another one that the folder may have as long as no clients were weighed by their examples.

    Raises:
        OffbeatError: The folder holds a run with other settings.
    """
    found, wanted = store.get_meta("config"), json.dumps(config, sort_keys=True)
    if found is None:
        with store.database.begin() as connection:
            values = {"config": wanted, "run": secrets.token_hex(8)}
            connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in values.items()])
        return store.get_meta("run") or ""
    before = _with_new_keys(json.loads(found), config)
    may_change = before == config_to_weigh and not store.has_record("weigh_clients")
    if before == config or may_change:
        with store.database.begin() as connection:
            connection.execute(sa.update(meta).where(meta.c.key == "config").values(value=wanted))
    else:
        keys = sorted(key for key in {*before, *config} if before.get(key) != config.get(key))
        raise OffbeatError(
            f"{store.folder} holds a run with other settings ({', '.join(keys)}): take another service.folder, or the "
            "settings that it was begun with"
        )
    return store.get_meta("run") or ""


def _with_new_keys(before: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return a folder's configuration with the keys that an earlier version of Offbeat did not have.

    That version kept slots for ever unless there was a lease, so its log has no call that another lease would change.
    """
    server, now = before.get("server", {}), config.get("server", {})
    if "max_visit_seconds" in server:
        return before
    return {**before, "server": {**{key: now[key] for key in _NEW_KEYS if key in now}, **server}} if now else before
