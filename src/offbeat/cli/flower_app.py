"""Options for Flower's apps, and what they name."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from offbeat_core.errors import OffbeatError

if TYPE_CHECKING:
    from torch import nn

    from offbeat.flower.app import FlowerApp

FLOWER = click.option("--flower", "app", metavar="MODULE:NAME", help="A Flower ClientApp, which trains.")
RUN_CONFIG = click.option(
    "--run-config", metavar="SETTINGS", help="Changes of the app's settings, such as 'local-epochs=2'."
)
NODE_CONFIG = click.option("--node-config", metavar="SETTINGS", help="The app's node, such as 'num-partitions=10'.")
MODEL = click.option(
    "--flower-model", metavar="MODULE:NAME", help="The function that makes the app's model; needed if that has buffers."
)


def load_app(path: str, run_config: str | None, node_config: str | None, model: str | None) -> "FlowerApp":
    """Return the app of these options."""
    try:
        from offbeat.flower.app import FlowerApp
        from offbeat.flower.app_config import read_config, read_run_config
        from offbeat.flower.model_arrays import ModelArrays
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("flwr"):
            raise
        raise OffbeatError("--flower needs Flower: pip install 'offbeat[flower]'") from None
    from offbeat.config.import_path import load_object

    return FlowerApp(
        load_object(path),
        run_config=read_run_config(Path.cwd(), run_config),
        node_config=read_config(node_config),
        model=None if model is None else ModelArrays(_module(model)),
    )


def make_client(app: "FlowerApp") -> Callable[[int], Any]:
    """Return the function that makes a client of the service."""
    from offbeat.flower.client import FlowerClient

    return lambda _: FlowerClient(app)


def _module(path: str) -> "nn.Module":
    from torch import nn

    from offbeat.config.import_path import call

    module = call(path, {}, "--flower-model")
    if not isinstance(module, nn.Module):
        raise OffbeatError(f"--flower-model {path}: must make a torch.nn.Module, made a {type(module).__name__}")
    return module
