"""Experiment files: all sections, reading, overrides."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from offbeat_core.errors import OffbeatError, setting
from offbeat_core.tables.section import Section
from offbeat_core.tables.validation_errors import collected, error_prefix, mistakes, user_error
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components import LocalPlan
from offbeat.config.algorithm_table import build_algorithm, hyper_parameters_of
from offbeat.config.experiment_sections import (
    ALTERNATIVES,
    AlgorithmTable,
    DataSection,
    EvaluateSection,
    FlowerSection,
    Metric,
    ServerSection,
    StopSection,
)
from offbeat.config.given_objects import Given
from offbeat.config.local_section import LocalSection
from offbeat.config.measured_metrics import check_client_evaluation, early_stop
from offbeat.config.model_sections import ModelSection
from offbeat.config.population_sections import IntervalsSection, PopulationSection
from offbeat.config.privacy_section import PrivacySection
from offbeat.config.set_option import read_changed
from offbeat.training.accelerator import Accelerator, Precision, check_device_name, choose_device
from offbeat.training.loss_modules import name_of_loss
from offbeat.training.objectives import METRICS
from offbeat.training.trainer_names import TRAINING_LOSS, TrainerName

TOOL_TABLE = "tool"
"""The table of an experiment's file that is for other programs, as in ``pyproject.toml``."""

SectionT = TypeVar("SectionT", bound=Section)
_MOST_EVALUATIONS = 10_000_000
FOLDER_NAME = r"^[A-Za-z0-9][\w. +-]*$"
FolderName = Annotated[str, Field(pattern=FOLDER_NAME)]


class Experiment(Section):
    """A file: algorithms that run in the same world, once for each seed."""

    name: FolderName
    """Folder of the results, below runs/; the file's name if it is left out."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Field(strict=False)] = (1,)
    """One run for each; a seed fixes clients, devices, initial model and minibatches."""
    trainer: TrainerName = "auto"
    """Clients one after the other, many at once, or several in processes or on a cluster; auto chooses by the model."""
    device: Annotated[str, AfterValidator(check_device_name)] = "auto"
    """auto, cpu, cuda, cuda:N or mps: where models are trained and evaluated. auto takes a CUDA GPU if there is one."""
    precision: Precision = "float32"
    """Of matrix products and convolutions: float32, tf32 (NVIDIA GPUs), or bf16 in forward passes."""
    deterministic: bool = True
    """On a GPU, use only operations that give the same bits each time."""
    data: DataSection
    model: ModelSection
    local: LocalSection
    population: PopulationSection
    server: ServerSection = ServerSection()
    privacy: PrivacySection | None = None
    """Masks and noise; neither if it is left out."""
    stop: StopSection
    evaluate: EvaluateSection
    flower: FlowerSection | None = None
    """A Flower app trains the clients, one after the other; left out, Offbeat does."""
    algorithms: Annotated[dict[FolderName, AlgorithmTable], Field(min_length=1)]

    @field_validator("seeds")
    @classmethod
    def _check_different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError("must be at least 1 seed, all different")
        return seeds

    @model_validator(mode="after")
    def _check_lease(self) -> "Experiment":
        check_lease(self.population, self.server)
        return self

    @model_validator(mode="after")
    def _check_target(self) -> "Experiment":
        target = self.evaluate.target
        if target is not None and self.metrics[:1] == ("accuracy",) and not 0 <= target <= 1:
            raise ValueError(f"evaluate.target = {target:g}: an accuracy is between 0 and 1, for instance 0.8")
        return self

    @model_validator(mode="after")
    def _check_number_of_evaluations(self) -> "Experiment":
        every, end = self.evaluate.every_seconds, self.stop.virtual_seconds
        until = setting("stop.virtual_seconds")
        # A run that ends by versions has no end that is known: one of a second is allowed.
        if every is not None and (end or 1.0) > _MOST_EVALUATIONS * every:
            raise ValueError(
                f"{setting('evaluate.every_seconds')} = {every:g}: is more than {_MOST_EVALUATIONS:,} evaluations "
                f"{'in a second' if end is None else f'until {until} = {end:g}'}: choose a longer interval"
            )
        return self

    @model_validator(mode="after")
    def _check_client_evaluation(self) -> "Experiment":
        is_private = self.privacy is not None or any(table.privacy for table in self.algorithms.values())
        check_client_evaluation(self.evaluate, self.metrics, holdout=self.population.holdout, is_private=is_private)
        early_stop(self.stop, self.evaluate, self.metrics)
        return self

    def accelerator(self) -> Accelerator:
        """Return the processor of the runs.

        Raises ``OffbeatError`` if it is not there, or cannot compute in this precision.
        """
        return Accelerator(choose_device(self.device), self.precision, self.deterministic)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics by name, import path or function; tables compare the first."""
        return metrics_of(self.evaluate, self.model)

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The better direction of the first metric, or else of the test loss."""
        if self.evaluate.better or not self.metrics:
            return self.evaluate.better or "lower"
        first = self.metrics[0]
        metric = METRICS.get(first) if isinstance(first, str) else None
        lower = first == TRAINING_LOSS if metric is None else not metric.higher_is_better
        return "lower" if lower else "higher"

    def algorithm(self, label: str, seed: int | None = None) -> Algorithm:
        """Return the algorithm of ``[algorithms.LABEL]``, not started.

        ``seed`` is the run's, by default the first.
        """
        table = self.algorithms[label]
        if isinstance(table.algorithm, Given):
            return copy.deepcopy(table.algorithm.value)
        with error_prefix(f"algorithms.{label}"):
            seed = self.seeds[0] if seed is None else seed
            return build_algorithm(table.algorithm or label, table.hyper_parameters, seed)

    def plan(self, label: str) -> LocalPlan:
        """Return what a client does in a visit under ``[algorithms.LABEL]``."""
        return self._local(label).plan()

    def resolved(self, label: str, seed: int, dataset: str) -> dict[str, Any]:
        """Return the configuration of one run, which can be run again, with all defaults."""
        algorithms = {label: {"algorithm": self.name_of(label), **hyper_parameters_of(self.algorithm(label, seed))}}
        return self.settings(label, seed, dataset) | {"algorithms": algorithms}

    def name_of(self, label: str) -> str:
        """Return the name of the algorithm of ``[algorithms.LABEL]``, or its import path."""
        algorithm = self.algorithms[label].algorithm or label
        return algorithm.name if isinstance(algorithm, Given) else algorithm

    def settings(self, label: str, seed: int, dataset: str) -> dict[str, Any]:
        """Return the configuration of one run without its algorithm."""
        table = self.model_dump(exclude_none=True, exclude={"algorithms", "local", "data", "privacy"})
        omitted = {"fallback"} if self.data.name == dataset else {"fallback", "arguments", "collate"}
        data = self.data.model_dump(exclude=omitted, exclude_defaults=True)
        # A copy keeps the order of the keys, so that a run of the result writes the same file.
        evaluate = self.evaluate.model_copy(update={"metrics": self.metrics, "better": self.better})
        privacy = self.privacy_of(label)
        return table | {
            "seeds": [seed],
            "data": data | {"name": dataset},
            # A plan from Python may have a step size for each step, which pydantic would warn of.
            "local": self._local(label).model_dump(exclude_none=True, warnings=False),
            **({} if privacy is None else {"privacy": privacy.model_dump(exclude_none=True)}),
            "evaluate": evaluate.model_dump(exclude_none=True),
        }

    def privacy_of(self, label: str) -> PrivacySection | None:
        """Return what protects clients under ``[algorithms.LABEL]``; None for nothing."""
        changes = self.algorithms[label].privacy
        if self.privacy is None and not changes:
            return None
        return self._changed(self.privacy, PrivacySection, label, "privacy", changes)

    def _local(self, label: str) -> LocalSection:
        return self._changed(self.local, LocalSection, label, "local", self.algorithms[label].local)

    def _changed(
        self, section: Section | None, kind: type[SectionT], label: str, name: str, changes: Mapping[str, Any]
    ) -> SectionT:
        """Return a section with an algorithm's own keys in it."""
        if isinstance(section, kind) and not changes:
            return section
        kept = {} if section is None else section.model_dump(exclude_none=True)
        replaced = {ALTERNATIVES.get(f"{name}.{key}") for key in changes}
        table = {**{key: value for key, value in kept.items() if key not in replaced}, **changes}
        try:
            return kind.model_validate(table)
        except ValidationError as error:
            raise user_error(mistakes(error, table, f"algorithms.{label}.{name}")) from None


def metrics_of(evaluate: EvaluateSection, model: ModelSection) -> tuple[Metric, ...]:
    """Return the metrics of ``[evaluate]``, or the default ones of the loss."""
    if evaluate.metrics is not None:
        return evaluate.metrics
    loss = name_of_loss(model.loss.value) if isinstance(model.loss, Given) else model.loss
    return ("accuracy",) if loss in ("cross_entropy", "bce") else ()


def check_lease(population: PopulationSection, server: ServerSection) -> None:
    """Check that the server does not wait forever for clients that never return."""
    lossy, clients = population.lossy, population.clients
    if lossy and lossy.probability == 1 and round(lossy.fraction * clients) == clients:
        raise ValueError("population.lossy: every client loses all its work, so the model would never change")
    if server.lease_seconds is not None:
        return
    if lossy:
        raise ValueError("population.lossy needs server.lease_seconds, or the server waits forever")
    if isinstance(population.availability, Given):
        raise ValueError("population.availability needs server.lease_seconds: some may not return")
    if isinstance(population.availability, IntervalsSection):
        raise ValueError("population.availability.name = 'intervals' needs server.lease_seconds: some may not return")
    if population.when_away == "lose":
        raise ValueError("population.when_away = 'lose' needs server.lease_seconds, or the server waits forever")


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment.

    Args:
        path: The TOML file.
        overrides: Changes such as ``local.lr=0.1``; the text after the equals sign is TOML, or else a string.

    Raises:
        OffbeatError: The file is missing, is not TOML, or holds a wrong key or value; one line names it.
    """
    table = read_changed(path, overrides, ALTERNATIVES)
    if "service" in table and "algorithms" not in table:
        raise OffbeatError(f"{path} is a server's file: offbeat server start {path}; an experiment's has [algorithms]")
    return experiment_of(table, path)


def experiment_of(table: Mapping[str, Any], path: Path) -> Experiment:
    """Return the experiment of a table from the file ``path``; errors as for ``load``."""
    table = {"name": path.stem} | {key: value for key, value in table.items() if key != TOOL_TABLE}
    lines: list[str] = []
    context = {"folder": path.parent}
    with error_prefix(path):
        try:
            experiment = Experiment.model_validate(table, context=context)
        except ValidationError as error:
            lines += mistakes(error, table)
            _collect_mistakes_of_algorithms(table.get("algorithms"), context, lines)
            raise user_error(lines) from None
        for label in experiment.algorithms:
            for check in (experiment.algorithm, experiment.plan, experiment.privacy_of):
                with collected(lines):
                    check(label)
        if lines:
            raise user_error(lines)
        return experiment


def _collect_mistakes_of_algorithms(algorithms: object, context: dict[str, Path], lines: list[str]) -> None:
    """Add the mistakes in the algorithms of a wrong experiment."""
    if not isinstance(algorithms, dict):
        return
    for label, values in cast("dict[str, object]", algorithms).items():
        with suppress(ValidationError):  # which is among the lines
            table = AlgorithmTable.model_validate(values, context=context)
            with collected(lines), error_prefix(f"algorithms.{label}"):
                build_algorithm(str(table.algorithm or label), table.hyper_parameters)
