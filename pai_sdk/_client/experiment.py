"""Experiment: a named group of jobs, for comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pai_sdk._client.session.default import session_or_default
from pai_sdk._client.tensorboard import TensorBoard
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.pai.compute import ExperimentConfig
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.session import Session
    from pai_sdk._wire.experiments import Accessibility, ExperimentRecord

__all__ = ["Experiment", "ExperimentConfig"]


@short_tracebacks
class Experiment:
    """One experiment of a workspace. Its only state is the last snapshot.

    `create`, `get`, `find` and `list` return it. Methods that make a request may raise an `ApiError` (the service
    refuses) or a `ConnectionFailedError` (no response).

    Attributes:
        record: the last snapshot of the experiment.

    Example:
        >>> experiment = Experiment.create("digits")  # doctest: +SKIP
        >>> estimator = Estimator(..., experiment_config=experiment)  # doctest: +SKIP
        >>> [job.status for job in experiment.jobs()]  # doctest: +SKIP
        ['Succeed']
    """

    def __init__(self, record: ExperimentRecord, session: Session) -> None:
        self.record = record
        self._session = session

    def __repr__(self) -> str:
        return f"<Experiment {self.name} {self.experiment_id}>"

    # ---- creation and search

    @classmethod
    def create(
        cls,
        name: str,
        artifact_uri: str | None = None,
        session: Session | None = None,
        *,
        accessibility: Accessibility | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Experiment:
        """Create an experiment in the workspace of the session.

        Args:
            name: a letter, then letters, digits, `_` and `-`; at most 63 characters, and unique in the workspace.
            artifact_uri: the OSS folder of the experiment. Its jobs put their outputs there, each in a folder of
                its own, unless they are given another place. The service chooses one without it.
            session: where; the default session otherwise.
            accessibility: who sees it: `PRIVATE`, the service's default, or `PUBLIC` for the whole workspace.
            labels: free labels, searchable.

        Raises:
            ConflictError: the workspace has an experiment of this name.
            InvalidRequestError: the name, the URI or a label is not usable.
        """
        if uri_scheme(str(name)) is not None:
            # alipai has them in the other order, and a name is never a URI.
            name, artifact_uri = str(artifact_uri), name
        session = session_or_default(session, local=False)
        experiment_id = session.experiments.create(
            name, artifact_uri=artifact_uri, accessibility=accessibility, labels=labels
        )
        return cls(session.experiments.get(experiment_id), session)

    @classmethod
    def get(cls, experiment_id: str, session: Session | None = None) -> Experiment:
        """The experiment of that id.

        Raises:
            NotFoundError: there is no such experiment.
        """
        session = session_or_default(session, local=False)
        return cls(session.experiments.get(experiment_id), session)

    @classmethod
    def find(cls, name: str, session: Session | None = None) -> Experiment:
        """The experiment of exactly that name.

        Raises:
            InvalidInputError: the workspace has none; the nearest name is offered.
        """
        session = session_or_default(session, local=False)
        return cls(session.experiments.find(name), session)

    @classmethod
    def get_by_name(cls, name: str, session: Session | None = None) -> Experiment | None:
        """The experiment of exactly that name, or None; `find` raises an error instead."""
        session = session_or_default(session, local=False)
        records = session.experiments.list(name=name, exact=True)
        return next((cls(record, session) for record in records if record.name == name), None)

    @classmethod
    def list(
        cls,
        name: str | None = None,
        session: Session | None = None,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Experiment]:
        """All experiments that match, the newest first.

        Args:
            name: only experiments with this text in their name.
            session: the session; the default session otherwise.
            labels: only experiments with all of these labels.
        """
        session = session_or_default(session, local=False)
        records = session.experiments.list(name=name, labels=labels)
        return (cls(record, session) for record in records)

    # ---- its state

    @property
    def experiment_id(self) -> str:
        """The id of the experiment."""
        return self.record.experiment_id

    @property
    def name(self) -> str | None:
        """The name of the experiment."""
        return self.record.name

    @property
    def artifact_uri(self) -> str | None:
        """The folder for what belongs to the experiment as a whole."""
        return self.record.artifact_uri

    def tensorboard_data(self) -> str | None:
        """The folder below which its jobs put their TensorBoard logs."""
        return self.record.tensorboard_log_uri

    def tensorboard(self, wait: bool = True) -> TensorBoard:
        """Start TensorBoard on what all its jobs have reported, side by side.

        Args:
            wait: it listens when this returns, also with False.

        Raises:
            InvalidInputError: the service names no folder for the logs.
            MissingExtraError: TensorBoard is not installed.
            ServiceStartError: it did not start.
        """
        uri = self.tensorboard_data()
        if not uri:
            message = f"{self.name!r} has no folder for TensorBoard logs"
            raise InvalidInputError([Problem("experiment", message, "look at its jobs: job.tensorboard()")])
        return TensorBoard.create(uri, wait, display_name=self.name, session=self._session)

    @property
    def labels(self) -> dict[str, str]:
        """The labels by key."""
        return {label.key: label.value or "" for label in self.record.labels if label.key}

    @property
    def config(self) -> ExperimentConfig:
        """The reference to this experiment in a job's request."""
        return ExperimentConfig(experiment_id=self.experiment_id)

    def refresh(self) -> ExperimentRecord:
        """Request a new snapshot.

        Raises:
            NotFoundError: the experiment has been deleted.
        """
        self.record = self._session.experiments.get(self.experiment_id)
        return self.record

    def jobs(self) -> Iterator[TrainingJob]:
        """The jobs of the experiment, the newest first.

        PAI does not list jobs by experiment: this reads the list of all jobs of the workspace.
        """
        for job in self._session.list_jobs(api="trainingjob"):
            if job.record.experiment_id == self.experiment_id:
                yield job

    # ---- changes

    def update(self, name: str | None = None, *, accessibility: Accessibility | None = None) -> Experiment:
        """Change the name or the visibility; None keeps the value.

        Raises:
            ConflictError: the workspace has an experiment of this name.
        """
        self._session.experiments.update(self.experiment_id, name=name, accessibility=accessibility)
        self.refresh()
        return self

    def set_labels(self, labels: Mapping[str, str]) -> Experiment:
        """Add labels, or replace those of the same key."""
        self._session.experiments.set_labels(self.experiment_id, labels)
        self.refresh()
        return self

    def delete_label(self, key: str) -> Experiment:
        """Delete a label."""
        self._session.experiments.delete_label(self.experiment_id, key)
        self.refresh()
        return self

    def delete(self) -> None:
        """Delete the experiment. Its jobs, and what they have written, stay."""
        self._session.experiments.delete(self.experiment_id)
