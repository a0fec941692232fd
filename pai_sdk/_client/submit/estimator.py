"""Estimator: a job that trains a model, by a command or by a function."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pai_sdk._client.submit.parameters import Description, ResumeSource
from pai_sdk._client.submit.submitter import CHECKPOINTS, EstimatorBase, training_outputs
from pai_sdk._core.names.keywords import checks_keywords, init_checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import Plan
    from pai_sdk._client.code.function_package import FunctionCall
    from pai_sdk._client.submit.channels import InputSource, OutputTarget
    from pai_sdk._wire.pai.spec import MetricDefinition

# Of an image such as `python:3.11-slim`, or `…/pytorch:2.1-gpu-py310-cu121`.
_PYTHON_OF_IMAGE = re.compile(r"(?:\bpython:|\bpy(?:thon)?)(3)\.?(\d{1,2})(?![\d])")
_COMMAND = 'python=$(command -v python || command -v python3) && exec "$python" '


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class Estimator(EstimatorBase):
    """Trains a model with your own code.

    Every job has the outputs `model`, `checkpoints` and `tensorboard`; `fit(outputs=…)` may add others.

    All parameters of `JobParameters` are taken too, by name: `instance_type`, `instance_count`, `environments`,
    `requirements`, `max_run_time`, `output_path`, `labels`, `session` and more. All of them are shown by
    `help(pai_sdk.jobs.JobParameters)`.

    Attributes:
        image_uri: image that the command runs in.
        command: command to run in the code folder; a string runs by `sh -c`, a list is not changed.
        source_dir: folder with the code, or an `oss://` folder; it becomes the working directory.
        git_config: git repository with the code: `repo`, and optionally `branch`, `commit`, `username`,
            `password`, `token`. `source_dir` is then a folder inside it.
        job_type: `PyTorchJob`, `TFJob`, `XGBoostJob`, …: how the instances of a job find each other.
        hyperparameters: maps names to values; the code reads them as `$PAI_USER_ARGS`, `$PAI_HPS_<NAME>` and in
            `/ml/input/config/hyperparameters.json`.
        metric_definitions: metrics to read from the log, for `job.metrics()`. The first group of each regex is
            the value: `[{"name": "loss", "regex": r"loss=([0-9.]+)"}]`.
        checkpoints_path: URI of the checkpoints; a job with that of an earlier job can continue from there.
        resume: the checkpoint to resume from, which `get_checkpoint()` returns in the job. True: the newest
            complete one in `checkpoints_path`; without one, the job starts from scratch. An earlier job, its id,
            or the URI or path of checkpoints: the newest complete one there, copied to the new job's checkpoints
            before it starts. If `checkpoints_path` has one that is not older, the job resumes from that.
        allow_secrets: upload files that look like keys, too (`.env`, `*.pem`).
        debugger: what `breakpoint()` in the job waits for: `terminal` for `pai-sdk debug JOB:rank`, `debugpy` for
            an editor; that needs debugpy in the image or the requirements. None leaves it to Python.

    Example:
        >>> estimator = Estimator(
        ...     image_uri="python:3.11",
        ...     command="python train.py $PAI_USER_ARGS",
        ...     hyperparameters={"lr": 0.1},
        ...     instance_type="ecs.c6.large",
        ... )
        >>> estimator.set_hyperparameters(epochs=3)
        >>> estimator.hyperparameters
        {'lr': 0.1, 'epochs': 3}
        >>> job = estimator.fit({"train": "data/train.csv"})  # doctest: +SKIP
        >>> job.download("model", "model/")  # doctest: +SKIP
    """

    image_uri: str
    command: str | Sequence[str]
    source_dir: str | os.PathLike[str] | None = None
    git_config: Mapping[str, str] | None = None
    job_type: str = "PyTorchJob"
    hyperparameters: Mapping[str, Any] | None = None
    metric_definitions: Sequence[MetricDefinition | Mapping[str, Any]] | None = field(default=None, kw_only=True)
    checkpoints_path: str | None = field(default=None, kw_only=True)
    allow_secrets: bool = field(default=False, kw_only=True)
    resume: ResumeSource = field(default=None, kw_only=True)
    debugger: Literal["terminal", "debugpy"] | None = field(default=None, kw_only=True)

    @classmethod
    def from_function(cls, function: Callable[..., Any], **parameters: Any) -> FunctionEstimator:
        """An estimator whose jobs call a function with the hyperparameters, as `FunctionRun` does here.

        Args:
            function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`; also a generator.
            parameters: those of an `Estimator` but `command` and `git_config`. The image needs the Python that
                runs here. Modules in `source_dir`, and installed ones, are imported in the job; other code is
                pickled.

        Raises:
            InvalidInputError: it is no such function.

        Example:
            >>> def train(config):
            ...     return {"loss": 1 - config["lr"]}
            >>> estimator = Estimator.from_function(
            ...     train, image_uri="python:3.11", hyperparameters={"lr": 0.1}, instance_type="ecs.c6.large")
            >>> job = estimator.fit()  # doctest: +SKIP
            >>> job.result()  # doctest: +SKIP
            {'loss': 0.9}
        """
        from pai_sdk._data.run.functions.calling import kind_of  # for weight: most estimators run no function

        try:
            kind_of(function)
        except ValueError as error:
            raise InvalidInputError([Problem("function", str(error))]) from None
        return FunctionEstimator(function=function, **parameters)

    def training_image_uri(self) -> str:
        """The image that jobs run in, as alipai names it."""
        return self.image_uri

    def describe(self) -> Description:
        """The description of the estimator's jobs."""
        checkpoints = self.checkpoints_path
        return Description(
            self.image_uri,
            self.command,
            self.hyperparameters,
            metric_definitions=self.metric_definitions or (),
            output_channels=training_outputs(),
            takes_more_outputs=True,
            placed_outputs={} if checkpoints is None else {CHECKPOINTS: ("checkpoints_path", checkpoints)},
            source_dir=self.source_dir,
            git_config=self.git_config,
            allow_secrets=self.allow_secrets,
            job_type=self.job_type,
            resume=self.resume,
            debugger=self.debugger,
        )


def _no_function(*_: object) -> None:
    raise NotImplementedError


@short_tracebacks
@init_checks_keywords
@dataclass(repr=False, eq=False)
class FunctionEstimator(Estimator):
    """Trains with a function; created by `Estimator.from_function`.

    Attributes:
        function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`; `config` is a dict of the
            hyperparameters, with the values as they were given.
    """

    command: str = ""
    function: Callable[..., Any] = field(default=_no_function, kw_only=True)

    @checks_keywords
    def plan(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """Returns the exact request of a job that calls the function, as `JobSubmitter.plan` describes it."""
        from pai_sdk._client.code.function_package import FunctionCall

        config = dict(self.hyperparameters or {})
        call = FunctionCall(self.function, (config,), is_training=True)
        return self.plan_call(call, inputs, outputs, job_name=job_name)

    def plan_call(
        self,
        call: FunctionCall,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
        *,
        job_name: str | None = None,
    ) -> Plan:
        """Returns the exact request of a job that makes one call, which is pickled now."""
        from pai_sdk._client.code.function_package import LABEL, calling, pack_call
        from pai_sdk._client.submit.planning import make_plan, with_git_labels

        self._check_image(call.name)
        packed = pack_call(call, self.source_dir, self.requirements or (), allow_secrets=self.allow_secrets)
        described = copy.copy(self)
        described.source_dir = packed.path
        described.environments = {**(self.environments or {}), calling.KEY_VARIABLE: packed.key.hex()}
        labels = self.labels or {}
        if self.git_labels and packed.source is not None:
            labels = with_git_labels(labels, packed.source)
        described.labels = {**labels, LABEL: packed.nonce}
        described.base_job_name = self.base_job_name or re.sub(r"[^A-Za-z0-9]+", "-", call.name).strip("-") or None
        plan = make_plan(described, self.resolved_session(), inputs, outputs, job_name)
        uploads = [replace(upload, origin=f"function {call.name}") for upload in plan.uploads[:1]]
        return replace(plan, uploads=(*uploads, *plan.uploads[1:]), keep=packed)

    def describe(self) -> Description:
        """The description of the jobs: the program that makes the call, and an output for its result."""
        from pai_sdk._client.code.function_package import PROGRAM, calling
        from pai_sdk._wire.pai.spec import Channel

        described = super().describe()
        result = Channel(name=calling.RESULT_CHANNEL, required=False)
        return replace(described, command=_COMMAND + PROGRAM, output_channels=[*described.output_channels, result])

    def _check_image(self, name: str) -> None:
        """Refuses what is certain to fail: an image whose name says that its Python is another one."""
        problems = []
        if self.git_config is not None:
            problems.append(
                Problem(
                    "git_config", "cannot be used with a function", "give the folder of the code as source_dir"
                )
            )
        if isinstance(self.source_dir, str) and "://" in self.source_dir:
            problems.append(Problem("source_dir", "is in OSS; for a function, it must be a local folder"))
        image_python = _PYTHON_OF_IMAGE.search(self.image_uri) if isinstance(self.image_uri, str) else None
        local_python = sys.version_info[:2]
        capabilities = self.resolved_session().backend_for(self.instance_type, self.api).capabilities
        if (
            image_python
            and capabilities.uses_images
            and (int(image_python[1]), int(image_python[2])) != local_python
        ):
            versions = f"{image_python[1]}.{image_python[2]}", ".".join(map(str, local_python))
            message = f"its Python is {versions[0]}, and {name} is pickled by Python {versions[1]}"
            problems.append(Problem("image_uri", f"{self.image_uri}: {message}", "both must be the same"))
        if problems:
            raise InvalidInputError(problems)
