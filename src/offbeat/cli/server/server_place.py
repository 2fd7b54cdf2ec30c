"""The argument that names a server: its folder, or its file."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from offbeat.cli.options import PATH

if TYPE_CHECKING:
    from offbeat.service.store_settings import StoreSettings


class ServerPlace(NamedTuple):
    """A server's folder, and the store that it shares with others; None without."""

    folder: Path
    store: "StoreSettings | None"


def _place(_: click.Context, __: click.Parameter, path: Path) -> ServerPlace:
    from offbeat.service.store_settings import noted_shared_store

    if not path.is_file():
        return ServerPlace(path, noted_shared_store(path))
    from offbeat_core.files import read_table

    from offbeat.config import host_file
    from offbeat.config.server_file import load

    if host_file.is_host_file(read_table(path)):
        return ServerPlace(Path(host_file.load(path).service.folder), None)
    file = load(path)
    return ServerPlace(Path(file.service.folder), file.store)


def _places(context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> tuple[ServerPlace, ...]:
    return tuple(_place(context, parameter, path) for path in paths)


SERVERS = click.argument("servers", metavar="FOLDER…", type=PATH, nargs=-1, required=True, callback=_places)
SERVER = click.argument("server", metavar="FOLDER", type=PATH, callback=_place)
