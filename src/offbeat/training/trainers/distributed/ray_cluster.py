"""The connection to a Ray cluster."""

import importlib
import importlib.util
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line

_CONNECT_SECONDS = 5.0


class RayCluster(NamedTuple):
    """A Ray cluster, and the share of it that a run takes.

    Attributes:
        address: ``auto`` or ``HOST:PORT`` of a running cluster. None stands for the environment variable
            ``RAY_ADDRESS``, or else for a cluster of this machine's processors, which lives as long as this process.
        runs: The number of runs among which the cluster's processors are divided.
    """

    address: str | None = None
    runs: int = 1


DEFAULT_CLUSTER = RayCluster()


def check_ray() -> None:
    """Raise ``OffbeatError`` if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise OffbeatError("trainer = 'ray': Ray is not installed: pip install 'offbeat[ray]'")


def connect(cluster: RayCluster, workers: int, *, on_gpus: bool = False) -> int:
    """Connect this process to a cluster; return how many actors a run may have in it.

    There is one for each processor or, with ``on_gpus``, for each GPU. A connection of this process is kept. A new
    cluster on this machine gets ``workers`` processors. Raises ``OffbeatError`` if the cluster does not answer, has
    another version of Python or Ray, or no GPU where one is needed.
    """
    ray = import_ray()
    if not ray.is_initialized():
        address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
        _check_answers(address)
        try:
            with _signal_handlers_kept(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Ray's own, on later versions
                ray.init(
                    address=address,
                    num_cpus=workers if address == "local" else None,
                    include_dashboard=False if address == "local" else None,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except (ray.exceptions.RayError, ConnectionError, OSError, RuntimeError, ValueError) as error:
            where = "no cluster can be started" if address == "local" else f"no connection to {address}"
            raise OffbeatError(
                f"trainer = 'ray': {where} ({error_line(error)}): check --ray-address, and that the cluster has the "
                "same versions of Python and Ray"
            ) from None
        if address == "local" and not on_gpus:
            return workers
    number = int(ray.cluster_resources().get("GPU" if on_gpus else "CPU", 0))
    if on_gpus and not number:
        raise OffbeatError("trainer = 'ray': the cluster has no GPU: use device = 'cpu'")
    return max(1, number // cluster.runs)


def import_ray() -> Any:
    """Return the module ``ray``, without its reports of usage and its advice."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else 15, so that any other program stops the training
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return importlib.import_module("ray")


def _check_answers(address: str) -> None:
    """Raise ``OffbeatError`` if nothing listens at ``HOST:PORT``.

    Ray would wait for minutes, without reacting to signals.
    """
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise OffbeatError(
            f"trainer = 'ray': no answer from {address} ({error_line(error)}): check --ray-address"
        ) from None


@contextmanager
def _signal_handlers_kept() -> Generator[None]:
    """Restore the handlers of signals, which stop a run with a checkpoint.

    ``ray.init`` replaces that of SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
