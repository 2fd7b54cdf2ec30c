"""A PostgreSQL server of the tests' own, on a socket in a temporary folder."""

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa

from offbeat.service.store_settings import StoreSettings

_FOLDERS = [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), *os.environ.get("PATH", "").split(os.pathsep)]


USER = "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None  # root may not run these programs


def program(name: str) -> str:
    """Return the path of a program; skip the test where it is not installed."""
    path = shutil.which(name, path=os.pathsep.join(_FOLDERS))
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(name: str, *words: object) -> None:
    """Run one of PostgreSQL's programs."""
    subprocess.run([program(name), *map(str, words)], user=USER, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def server_folder() -> Generator[Path]:
    """A folder for a server's data and its socket."""
    with TemporaryDirectory(prefix="pg") as temporary:
        folder = Path(temporary)
        if USER is not None:
            shutil.chown(folder, USER)
        yield folder


@contextmanager
def started(folder: Path) -> Generator[str]:
    """Run a server on the data in a folder; the context has its URL."""
    data = folder / "data"
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c shared_buffers=16MB"
    run("pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
    try:
        yield f"postgresql+psycopg://offbeat@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")


@contextmanager
def new_server() -> Generator[tuple[Path, str]]:
    """Run a new server; the context has its folder and the URL of an empty database."""
    program("initdb")
    with server_folder() as folder:
        run("initdb", "-D", folder / "data", "-A", "trust", "-U", "offbeat")
        with started(folder) as url:
            yield folder, url


@pytest.fixture(scope="session")
def postgres() -> Generator[str]:
    """The URL of an empty database of a real server; the tests that need it are skipped where there is none."""
    with new_server() as (_, url):
        yield url


@pytest.fixture
def store(postgres: str, tmp_path: Path) -> Generator[StoreSettings]:
    """A log in that database and a folder of blobs, which servers share."""
    yield StoreSettings(log=postgres.replace("+psycopg", ""), blobs=f"file://{tmp_path}/blobs")
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS log, bodies, runs, servers")
    engine.dispose()
