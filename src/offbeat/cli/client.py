"""Commands of a client of the service: ``join``, and the group ``client``."""

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_text

from offbeat.cli.options import PATH

if TYPE_CHECKING:
    from torch import nn

    from offbeat.flower.client_app import FlowerApp


@click.command(
    epilog="\b\nExample:\n  offbeat join https://localhost:8443 --token-file enrolment-token --ca ca.pem "
    "--client client.py:make_client"
)
@click.argument("url", metavar="URL")
@click.option("--token-file", metavar="FILE", type=PATH, help="The file with the enrolment token, for the first time.")
@click.option("--token", metavar="TOKEN", help="The enrolment token itself, which other users of the machine can see.")
@click.option(
    "--client",
    "path",
    metavar="FILE.py:NAME",
    help="The function that makes a client from its number, and the run's name.",
)
@click.option("--flower", "app", metavar="MODULE:NAME", help="A Flower ClientApp, which trains.")
@click.option("--run-config", metavar="SETTINGS", help="Changes of the app's settings, such as 'local-epochs=2'.")
@click.option("--node-config", metavar="SETTINGS", help="The app's node, such as 'num-partitions=10'.")
@click.option(
    "--flower-model", metavar="MODULE:NAME", help="The function that makes the app's model; needed if that has buffers."
)
@click.option("--ca", metavar="FILE", type=PATH, help="Certificates to trust; those of the system by default.")
@click.option(
    "--folder", metavar="FOLDER", type=PATH, default=Path("client"), show_default=True, help="The client's folder."
)
@click.option("--name", metavar="NAME", help="The client's name in lists and logs.")
@click.option("--visits", metavar="N", type=click.IntRange(min=1), help="Stop after so many updates.")
@click.option("--stay", is_flag=True, help="Stay after the end of the run, and go on if it is extended.")
@click.option("--device", metavar="NAME", help="Where LocalSGD trains: auto, cpu, cuda, cuda:N or mps.")
@click.option("--terms", metavar="FILE", type=PATH, help="terms.json of the helper: send masked updates only.")
@click.option(
    "--privacy-key", metavar="FILE", type=PATH, help="The file of the client's key; by default signing-key in --folder."
)
def join(
    url: str,
    token_file: Path | None,
    token: str | None,
    path: str | None,
    app: str | None,
    run_config: str | None,
    node_config: str | None,
    flower_model: str | None,
    ca: Path | None,
    folder: Path,
    name: str | None,
    visits: int | None,
    stay: bool,
    device: str | None,
    terms: Path | None,
    privacy_key: Path | None,
) -> None:
    """Take part in the runs of the server at URL.

    It ends with the run, or with all of them. The same command resumes.
    """
    from offbeat.client.torch_client import run_client
    from offbeat.training.accelerator import choose_device

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if token_file is not None:
        token = _read_token(token_file, token)
    make_client = _make_client(path, app, run_config, node_config, flower_model)
    if device is not None:
        choose_device(device)  # before the first request
        make_client = _on_device(make_client, device)
    counted = run_client(
        url, make_client, folder, enrolment_token=token, name=name, ca=ca, visits=visits, stay=stay,
        terms=terms, privacy_key=privacy_key,
    )  # fmt: skip
    click.echo(f"Done: {counted} update{'' if counted == 1 else 's'} counted since this process started")


def _make_client(
    path: str | None, app: str | None, run_config: str | None, node_config: str | None, model: str | None
) -> Callable[..., Any]:
    """Return the function of ``--client``, or one that makes clients of ``--flower``."""
    if app is not None and path is None:
        loaded = _load_app(app, run_config, node_config, model)
        from offbeat.flower.client_app import FlowerClient

        return lambda _: FlowerClient(loaded)
    if path is None or app is not None:
        raise OffbeatError("give --client or --flower, one of them")
    if run_config or node_config or model:
        raise OffbeatError("--run-config, --node-config and --flower-model are for --flower: leave them out")
    from offbeat.config.import_path import load_callable

    return load_callable(path)


def _load_app(path: str, run_config: str | None, node_config: str | None, model: str | None) -> "FlowerApp":
    """Return the app of these options."""
    try:
        from offbeat.flower.app_config import read_config, read_run_config
        from offbeat.flower.client_app import FlowerApp
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


def _module(path: str) -> "nn.Module":
    from torch import nn

    from offbeat.config.import_path import call

    module = call(path, {}, "--flower-model")
    if not isinstance(module, nn.Module):
        raise OffbeatError(f"--flower-model {path}: must make a torch.nn.Module, made a {type(module).__name__}")
    return module


def _on_device(make_client: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Return a function whose clients train on a device; they must be ``LocalSGD``."""
    from offbeat.client import LocalSGD

    @wraps(make_client)
    def make(*arguments: Any) -> Any:
        made = make_client(*arguments)
        if not isinstance(made, LocalSGD):
            raise OffbeatError("--device is for clients that are LocalSGD: move a model of your own in its code")
        made.to(device)
        return made

    return make


def _read_token(file: Path, token: str | None) -> str:
    if token is not None:
        raise OffbeatError("give --token-file or --token, not both")
    try:
        return read_text(file).strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OffbeatError(
            f"cannot read the token in {file}: {reason}: copy enrolment-token from the server's folder, which "
            "has it once the server listens"
        ) from None


@click.group()
def client() -> None:
    """Make a client's key; compare the models that clients got.

    A client takes part with `offbeat join`.
    """


@client.command(epilog="\b\nExample:\n  offbeat client key --folder client")
@click.option(
    "--folder", metavar="FOLDER", type=PATH, default=Path("client"), show_default=True, help="The client's folder."
)
def key(folder: Path) -> None:
    """Print a client's public key for the helper's roster.

    If the folder has no key, it is made.
    """
    from offbeat_client.private_updates import public_key

    click.echo(public_key(folder))


@client.command(
    "compare-models",
    epilog="\b\nExample:\n  offbeat client compare-models 1/models-4e9d….txt 2/models-4e9d….txt",
)
@click.argument("one", metavar="FILE", type=PATH)
@click.argument("two", metavar="FILE", type=PATH)
def compare(one: Path, two: Path) -> None:
    """Check that two clients got the same models.

    Each FILE is models-….txt of a client's folder. A server that gives clients different models may single one out.
    """
    from offbeat_client.client_folder.private_record import compare_models

    count = compare_models(one, two)
    click.echo(f"{count} version{' is' if count == 1 else 's are'} in both, with the same models")
