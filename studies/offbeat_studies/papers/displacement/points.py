"""Points of the study: settings, runs, and the files that keep them."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import torch
from offbeat_core.tables.section import Count, Positive, Section
from pydantic import Field, model_validator

from offbeat.report.export import write_file
from offbeat_studies.papers.displacement.runs import mean_norm, uploads_to_target
from offbeat_studies.papers.displacement.setting import Kind, Setting
from offbeat_studies.papers.displacement.world import World

_Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=2)]
_SECONDS = 4.0  # of one core for a point with 15 seeds, measured in the pilot


class DisplacementSection(Section):
    """``[displacement]``: the settings of the study."""

    tuning_seeds: _Seeds
    """They choose the best D and fit the curves."""
    seeds: _Seeds
    """They judge."""
    sizes: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)]
    """K of FedBuff and FedFa."""
    at_work: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)]
    """M."""
    x: Annotated[tuple[Positive, ...], Field(strict=False, min_length=7)]
    """The values of D τ_u, ascending."""
    bounded_from: Positive
    """FedAsync and FedFa with params, which have x < 1, are judged from this x on."""
    small_lr: Positive
    """A second step size, for FedBuff with the first K."""
    small_lr_at_work: Count
    """M at the second step size."""
    world: World
    """The clients."""

    @model_validator(mode="after")
    def _check(self) -> "DisplacementSection":
        if self.small_lr == self.world.lr:
            raise ValueError("small_lr must differ from world.lr")
        if set(self.seeds) & set(self.tuning_seeds):
            raise ValueError("seeds must differ from tuning_seeds")
        return self


@dataclass(frozen=True)
class Point:
    """A setting at one displacement, with each seed's uploads to the target.

    Attributes:
        setting: The algorithm, K, M and step size.
        c: Displacement by an upload in units of its own ‖Δ‖.
        norm: ‖Δ‖ at its step size, in units of ‖Δ‖ at the reference step size.
        uploads: By seed; None where the target was not reached within the budget.
        seconds: Processor time.
    """

    setting: Setting
    c: float
    norm: float
    uploads: dict[int, int | None]
    seconds: float

    @property
    def displacement(self) -> float:
        """D."""
        return self.c * self.norm

    @property
    def x(self) -> float:
        """D τ_u."""
        return self.displacement * self.setting.delay


def settings(section: DisplacementSection) -> Iterator[tuple[Setting, list[float]]]:
    """Yield each setting with its displacements by an upload, in units of its own ‖Δ‖."""
    lr = section.world.lr
    for at_work in section.at_work:
        for size in section.sizes:
            for kind in ("fedbuff", "fedfa"):
                yield _with_displacements(section, kind, size, at_work, lr)
            yield _with_displacements(section, "fedfa-params", size, at_work, lr)
        yield _with_displacements(section, "fedasync", 1, at_work, lr)
    yield _with_displacements(section, "fedbuff", section.sizes[0], section.small_lr_at_work, section.small_lr)


def _with_displacements(
    section: DisplacementSection, kind: Kind, size: int, at_work: int, lr: float
) -> tuple[Setting, list[float]]:
    setting = Setting(kind, size, at_work, lr)
    if not setting.is_bounded:
        return setting, [x / setting.delay for x in section.x]
    smaller = [x / setting.delay for x in section.x if x / setting.delay < 0.9 * setting.largest]
    return setting, [*(smaller if kind == "fedasync" else []), setting.largest]


def measure(section: DisplacementSection, folder: Path) -> None:
    """Run the points that ``folder`` lacks; each is kept as soon as it is complete."""
    torch.set_num_threads(1)
    missing = [
        (setting, c)
        for setting, displacements in settings(section)
        for c in displacements
        if _read(section, setting, c, folder) is None
    ]
    middle = math.fsum(map(math.log, section.x)) / len(section.x)
    missing.sort(key=lambda one: abs(math.log(one[0].delay * one[1]) - middle))  # the ends need the most uploads
    seeds = _all_seeds(section)
    minutes = len(missing) * len(seeds) / 15 * _SECONDS / 60
    click.echo(f"{len(missing)} points with {len(seeds)} seeds each, about {minutes:.0f} minutes of one core")
    norms = {lr: mean_norm(section.world, section.tuning_seeds, lr) for lr in (section.world.lr, section.small_lr)}
    for setting, c in missing:
        began = time.process_time()
        algorithms = [setting.algorithm(c) for _ in seeds]
        found = uploads_to_target(algorithms, setting.at_work, seeds, section.world, setting.lr)
        content = {
            "world": section.world.model_dump(mode="json"),
            "norm": norms[setting.lr] / norms[section.world.lr],
            "uploads": {str(seed): uploads for seed, uploads in zip(seeds, found, strict=True)},
            "seconds": round(time.process_time() - began, 2),
        }
        write_file(_path(setting, c, folder), json.dumps(content, indent=1).encode())


def read_points(section: DisplacementSection, folder: Path) -> list[Point] | None:
    """Return all points; None unless all have been run with these settings."""
    found = [_read(section, setting, c, folder) for setting, displacements in settings(section) for c in displacements]
    points = [point for point in found if point is not None]
    return points if len(points) == len(found) else None


def _path(setting: Setting, c: float, folder: Path) -> Path:
    return folder / f"{setting.kind}-K{setting.size}-M{setting.at_work}-lr{setting.lr:g}-c{c:.5f}.json"


def _read(section: DisplacementSection, setting: Setting, c: float, folder: Path) -> Point | None:
    try:
        content: dict[str, Any] = json.loads(_path(setting, c, folder).read_text(encoding="utf-8"))
        if content["world"] != section.world.model_dump(mode="json"):
            return None
        uploads = {seed: content["uploads"][str(seed)] for seed in _all_seeds(section)}
        return Point(setting, c, content["norm"], uploads, content["seconds"])
    except (OSError, ValueError, LookupError, TypeError):  # missing or broken
        return None


def _all_seeds(section: DisplacementSection) -> Sequence[int]:
    return [*section.tuning_seeds, *section.seeds]
