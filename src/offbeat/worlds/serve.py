"""From a server's file to a running server."""

import json
import math
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import Certificates, check_certificate, make_certificates
from offbeat_core.user_code_errors import error_line
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from offbeat.algorithms.components.buffers.share_cap import cap_share
from offbeat.config.experiment_file import metrics_of
from offbeat.config.import_path import is_import_path
from offbeat.config.server_file import PlaceSection, ServerFile
from offbeat.coordinator import Coordinator
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.service.server.event_loop import run_until_a_signal
from offbeat.service.server.serving import Listening, serve
from offbeat.service.server_settings import ServerSettings
from offbeat.service.store.model_files import Layout
from offbeat.training.default_metrics import default_metrics
from offbeat.training.flat_model import FlatModel
from offbeat.worlds.algorithm_setup import dry_run, guard_pattern, wrap_buffer
from offbeat.worlds.served_privacy import check_plans, privacy_settings, protect_served
from offbeat.worlds.workload import build_dataset, build_model, load_loss


def run_server(file: ServerFile, ready: Callable[[Listening], None], fronts: int = 0) -> None:
    """Run a server until SIGTERM or Ctrl-C; ``ready`` is called when it listens.

    So many ``fronts`` serve clients in processes of their own.
    """
    if fronts and sys.platform == "win32":
        raise OffbeatError("--fronts needs Unix sockets, which Windows lacks: leave it out")
    with prepared(file, lambda: certificates_of(file.service), fronts) as (settings, coordinator, layout):
        run_until_a_signal(lambda stop: serve(settings, coordinator, layout, ready=ready, stop=stop))


@contextmanager
def prepared(
    file: ServerFile, certificates: Callable[[], Certificates | None], fronts: int = 0
) -> Generator[tuple[ServerSettings, Coordinator, Layout]]:
    """Return a run's settings, a fresh coordinator, and the model's layout."""
    torch.set_num_threads(1)  # one thread always adds in one order
    file = with_metrics_of_data(file)
    coordinator, layout = build_coordinator(file)
    with privacy_settings(file, coordinator.algorithm.model.numel()) as privacy:
        settings = file.settings(
            certificates=certificates(),  # which makes them, so not before the rest is known to be right
            front_processes=fronts,
            evaluate_command=_evaluation_command(file),
            privacy=privacy,
            config=_config(file, privacy),
        )
        yield settings, coordinator, layout


def build_coordinator(file: ServerFile) -> tuple[Coordinator, Layout]:
    """Return the coordinator of a new run, and the layout of the model's parameters."""
    section = file.service
    dataset = None if file.data is None else build_dataset(file.data)
    try:
        model = build_model(file.model, dataset, section.seed)
    except RuntimeError as error:  # PyTorch's, which cannot allocate it
        raise OffbeatError(f"model cannot be made: {error_line(error)}") from None
    vector = model.vector
    if section.initial_model is not None:
        vector = read_initial_model(Path(section.initial_model), model)
    algorithm, plan = file.build_algorithm(), file.local.plan()
    if algorithm.pooled:
        raise OffbeatError(f"algorithm: {algorithm.name} needs all data in one place: it is for simulations only")
    guard_pattern(algorithm)
    lease_seconds = file.server.lease_seconds
    try:
        has_weights = file.privacy is None and file.server.aggregate in (None, "mean")  # a robust mean has none
        if has_weights and algorithm.weighs_by_examples and section.max_share < 1:
            algorithm.wrap(cap_share(section.max_share))
        # The service itself refuses updates whose norm is too large, before they are logged.
        wrap_buffer(algorithm, file.server.model_copy(update={"max_update_norm": None}))
        participation = protect_served(file, algorithm, len(vector))
        dry_run(algorithm, vector, torch.ones(section.clients, dtype=torch.float64), plan)
        coordinator = Coordinator(
            algorithm,
            vector,
            clients=section.clients,
            local=plan,
            seed=section.seed,
            lease_seconds=math.inf if lease_seconds is None else lease_seconds,
            max_visit_seconds=file.server.max_visit_seconds,
            max_staleness=file.server.max_staleness,
            waits_for_examples=algorithm.weighs_all_clients,
            participation=participation,
        )
        check_plans(file, algorithm, plan)
    except ValueError as error:
        raise OffbeatError(f"algorithm: {error}") from None
    return coordinator, [(name, tuple(tensor.shape)) for name, tensor in model.named(vector).items()]


def with_metrics_of_data(file: ServerFile) -> ServerFile:
    """Return a file with metrics: its own, else the default ones for its data."""
    # Built-in data have classes, whose metrics follow from the loss alone.
    is_own = file.data is not None and is_import_path(str(file.data.name))
    if file.data is None or file.evaluate is None or file.evaluate.metrics is not None or not is_own:
        return file
    metrics = default_metrics(load_loss(file.model.loss), build_dataset(file.data).test_labels)
    return file.model_copy(update={"evaluate": file.evaluate.model_copy(update={"metrics": tuple(metrics)})})


def _config(file: ServerFile, privacy: PrivacySettings | None) -> dict[str, Any]:
    """Return what must not change when the server restarts, with terms or secret."""
    config: dict[str, Any] = json.loads(json.dumps(file.resolved()))
    if privacy is not None and privacy.terms is not None:
        config["privacy"]["terms"] = privacy.terms.digest.hex()
    if privacy is not None and privacy.noise_secret is not None:
        config["privacy"]["noise_secret"] = privacy.noise_secret
    return config


def _evaluation_command(file: ServerFile) -> Sequence[str]:
    """Return the command that starts ``server_evaluation``; empty without evaluations."""
    if file.evaluate is None or file.data is None:
        return ()
    sections = {
        "data": file.data.model_dump(mode="json", exclude_none=True),
        "model": file.model.model_dump(mode="json", exclude_none=True),
        "metrics": metrics_of(file.evaluate, file.model),
        "seed": file.service.seed,
    }
    return sys.executable, "-m", "offbeat.worlds.server_evaluation", json.dumps(sections)


def certificates_of(section: PlaceSection) -> Certificates | None:
    """Return the files for TLS with clients, made if need be; None for plain HTTP."""
    if not section.tls:
        return None
    if section.certificate and section.key:
        own, key = Path(section.certificate), Path(section.key)
        check_certificate(own, key)
        return Certificates(ca=own, certificate=own, key=key)
    return make_certificates(Path(section.folder) / "tls", section.hosts)


def read_initial_model(path: Path, model: FlatModel) -> Tensor:
    """Return the vector, float32 ``(d,)``, of an exported file or of a run.

    Raises:
        OffbeatError: The file cannot be read, or holds other parameters than ``model``.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise OffbeatError(f"cannot read service.initial_model = {path}: {reason}") from None
    vector = torch.empty_like(model.vector)
    named = model.named(vector)
    if _forms(tensors) not in (_forms(named), _forms(model.saved(vector))):
        raise OffbeatError(
            f"service.initial_model = {path} does not hold this model's parameters: take a file that "
            "offbeat server export wrote"
        )
    for name, tensor in named.items():
        tensor.copy_(tensors[name])
    return vector


def _forms(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
