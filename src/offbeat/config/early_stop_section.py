"""The keys of ``[stop]`` that end a run by a metric."""

from typing import Annotated

from offbeat_core.tables.section import Count, Section
from pydantic import Field, model_validator


class EarlyStopSection(Section):
    """A target or a patience, and their metric."""

    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The run also ends at the first evaluation at which the metric has reached this value."""
    patience: Count | None = None
    """The run also ends once so many evaluated versions in a row have not had a better value of the metric."""
    metric: str | None = None
    """The metric of target and patience: one on the test set, or one over clients such as client_accuracy_mean. The
    first of evaluate.metrics, or the loss, if it is left out."""

    @model_validator(mode="after")
    def _check_metric(self) -> "EarlyStopSection":
        if self.metric is not None and not self.is_early:
            raise ValueError("metric is for target and patience: set one of them, or leave it out")
        return self

    @property
    def is_early(self) -> bool:
        """True if a metric may end the run."""
        return self.target is not None or self.patience is not None
