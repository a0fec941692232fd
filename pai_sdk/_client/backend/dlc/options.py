"""What only jobs of DLC have, beside the parameters of every job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pai_sdk._wire.dlc.settings import JobSettings
from pai_sdk._wire.pai.numbers import Integer, Number
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk._wire.pai.wire import Sent

__all__ = ["DlcCodeSource", "DlcMount", "DlcOptions", "DlcSpotType"]


def _password(value: Any) -> Any:
    return value.placeholder if isinstance(value, Secret) else value


class DlcMount(Sent):
    """A folder that the job sees: of a URI, or of a data set of the workspace.

    Attributes:
        path: where the job sees it, such as `/mnt/data`; a data set has a path of its own if None.
        uri: the folder, such as `oss://bucket/data/` or `nas://<id>.<region>/data/`.
        dataset_id: the data set, in place of `uri`.
        version: of the data set; the newest if None.
        access: `RO`, or `RW` for a folder that the job writes.
        options: JSON text with options of the file system, such as `{"mountType":"ossfs"}`.
        enable_cache: keep files near to the job.
        role_arn: the RAM role with which it is mounted.

    Example:
        >>> DlcMount(path="/mnt/data", dataset_id="d-rq3cxyhfn8zo2lq3k1").access
        'RO'
    """

    path: str | None = None
    uri: str | None = None
    dataset_id: str | None = None
    version: str | None = None
    access: Literal["RO", "RW"] = "RO"
    options: str | None = None
    enable_cache: bool | None = None
    role_arn: str | None = None

    @model_validator(mode="after")
    def _check_source(self) -> DlcMount:
        if (self.uri is None) == (self.dataset_id is None):
            raise ValueError("a mount needs either a uri or a dataset_id")
        return self


class DlcCodeSource(Sent):
    """Code that is registered in the workspace, and cloned when the job starts.

    Attributes:
        id: its id, `code-…`.
        branch: in place of the registered one.
        commit: takes precedence over the branch.
        path: where the job sees it; the registered one if None.
        is_shared: clone once, on storage that all instances see.

    Example:
        >>> DlcCodeSource(id="code-20210111103721-85qz78ia96lu", branch="main").branch
        'main'
    """

    id: str
    branch: str | None = None
    commit: str | None = None
    path: str | None = None
    is_shared: bool | None = None


class DlcSpotType(Sent):
    """A spot instance type that an elastic job may use.

    Attributes:
        instance_type: such as `ecs.gn7i-c8g1.2xlarge`.
        discount_percent: the most to pay, in percent of the usual price.
        price_per_hour: the same as a price.
    """

    instance_type: str
    discount_percent: Annotated[Number | None, Field(gt=0, le=100)] = None
    price_per_hour: Annotated[Number | None, Field(gt=0)] = None


class DlcOptions(Sent):
    """Options of jobs with `api="dlc"`; all other parameters are those of every job.

    Attributes:
        accessibility: who may see the job: `PUBLIC` for all of the workspace, or `PRIVATE`.
        driver: the version of the GPU driver.
        node_names: the only nodes that it may run on.
        avoid_nodes: nodes that it must not run on.
        spot_price_per_minute: the most to pay for a spot instance; goes with `spot_spec`.
        elastic_spot: spot instance types that an elastic job may use.
        restart_policy: what happens after an instance has ended.
        success_policy: which instances must succeed; `ChiefWorker` is for TFJob.
        mounts: further folders and data sets.
        code_source: code registered in the workspace, in place of `source_dir`.
        image_registry: the registry of a private image.
        image_username: its user.
        image_password: the password, as `Secret("NAME")` so that no plan has it.
        grace_period_s: seconds between SIGTERM and SIGKILL when the job is stopped.
        settings: further settings of DLC by their names in the API, such as `{"EnableCPUAffinity": True}`.

    Example:
        >>> DlcOptions(driver="550.54.15", mounts=[{"path": "/mnt/data", "uri": "oss://b/data/"}]).mounts[0].access
        'RO'
    """

    accessibility: Literal["PRIVATE", "PUBLIC"] | None = None
    driver: str | None = None
    node_names: list[str] = Field(default_factory=list)
    avoid_nodes: list[str] = Field(default_factory=list)
    spot_price_per_minute: Annotated[Number | None, Field(gt=0)] = None
    elastic_spot: list[DlcSpotType] = Field(default_factory=list)
    restart_policy: Literal["Always", "Never", "OnFailure", "ExitCode"] | None = None
    success_policy: Literal["AllWorkers", "ChiefWorker", "Partial"] | None = None
    mounts: list[DlcMount] = Field(default_factory=list)
    code_source: DlcCodeSource | None = None
    image_registry: str | None = None
    image_username: str | None = None
    image_password: Annotated[str | None, BeforeValidator(_password)] = Field(default=None, repr=False)
    grace_period_s: Annotated[Integer | None, Field(ge=0)] = None
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_settings(self) -> DlcOptions:
        known = {field.alias for field in JobSettings.model_fields.values()} - {"Tags"}
        if wrong := sorted(self.settings.keys() - known):
            raise ValueError(
                f"settings: unknown {', '.join(wrong)}; available: {', '.join(sorted(map(str, known)))}"
            )
        return self
