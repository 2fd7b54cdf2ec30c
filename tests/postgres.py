"""A PostgreSQL server of the tests' own, on a socket in a temporary folder."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa

from offbeat.service.store_settings import StoreSettings

_FOLDERS = [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), *os.environ.get("PATH", "").split(os.pathsep)]


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join(_FOLDERS))


@pytest.fixture(scope="session")
def postgres() -> Generator[str]:
    """The URL of an empty database of a real server; the tests that need it are skipped where there is none."""
    initdb, control = _program("initdb"), _program("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("PostgreSQL is not installed")
    with TemporaryDirectory(prefix="pg") as temporary:
        folder = Path(temporary)
        user = None
        if os.geteuid() == 0:  # as which PostgreSQL refuses to run
            user = "postgres"
            shutil.chown(folder, user)
        data = str(folder / "data")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c shared_buffers=16MB"
        subprocess.run([initdb, "-D", data, "-A", "trust", "-U", "offbeat"], user=user, check=True, capture_output=True)
        start = [control, "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start"]
        subprocess.run(start, user=user, check=True, stdout=subprocess.DEVNULL)
        try:
            yield f"postgresql+psycopg://offbeat@/postgres?host={folder}"
        finally:
            subprocess.run([control, "-D", data, "-m", "immediate", "stop"], user=user, check=True, capture_output=True)


@pytest.fixture
def store(postgres: str, tmp_path: Path) -> Generator[StoreSettings]:
    """A log in that database and a folder of blobs, which servers share."""
    yield StoreSettings(log=postgres.replace("+psycopg", ""), blobs=f"file://{tmp_path}/blobs")
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS log, bodies, runs, servers")
    engine.dispose()
