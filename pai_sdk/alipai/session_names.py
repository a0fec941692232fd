"""Members of alipai's `Session`: settings by name, buckets of oss2, the workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._core.config.credentials import CredentialsProvider
from pai_sdk._core.config.settings import Settings, save_config
from pai_sdk._core.endpoint import short_endpoint
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.alipai.pai.common.consts import Network
from pai_sdk.errors import SettingsError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

SESSION_REPLACEMENTS = {
    "training_job_api": (
        "session.get_job(id), session.list_jobs(), job.logs(), job.metrics(), job.stop(), job.delete()"
    ),
    "algorithm_api": "session.algorithms",
    "experiment_api": "session.experiments, or Experiment",
    "image_api": "session.images, or pai_sdk.jobs.retrieve()",
    "workspace_api": "session.workspaces.list(), .get(id)",
    "tensorboard_api": "TensorBoard.create(uri), or job.tensorboard()",
    "job_api": "Estimator and Processor with api='dlc'; session.get_job(id)",
    "lineage_api": "job.record has the inputs and outputs of a job; there is no lineage service",
    "pipeline_run_api": "pipelines of PAIFlow are not part of pai_sdk",
    "dataset_api": "give the id of a data set, 'd-…', or its URI as an input",
    "code_source_api": "git_config of an Estimator",
    "model_api": "session.models, or pai_sdk.model.RegisteredModel",
    "service_api": "serving is not part of pai_sdk; use PAI-EAS",
    "pipeline_api": "pipelines of PAIFlow are not part of pai_sdk",
    "is_supported_training_instance": "session.instance_types.list(names=[…]) lists those of them that there are",
    "is_gpu_training_instance": "accelerator_type of session.instance_types.list(names=[…])",
    "is_supported_inference_instance": "serving is not part of pai_sdk; use PAI-EAS",
    "is_gpu_inference_instance": "serving is not part of pai_sdk; use PAI-EAS",
    "get_default_oss_storage": "session.workspaces.model_export_path(session.workspace_id)",
    "provider": "the id of the account is not part of pai_sdk; the console shows it",
}
"""Further attributes of alipai's session, each with its replacement."""


class SessionAliases:
    """The settings of a session by name, as code written for alipai reads them."""

    settings: Settings
    credentials: CredentialsProvider
    _default_key: bool
    """The key was not given: it is searched for where Alibaba Cloud's tools do."""

    # Of the session itself.
    is_embedded: bool
    workspaces: Any
    workspace_id: str | None
    files: Callable[[], OssClient]
    upload: Callable[..., str]

    def default_bucket(self) -> str:
        """The name of the bucket for code, local inputs and outputs, by the name of SageMaker.

        Raises:
            SettingsError: no bucket is set.
        """
        self.settings.require("oss_bucket_name")
        return str(self.settings.oss_bucket_name)

    @property
    def workspace_name(self) -> str | None:
        """The name of that workspace; it is requested."""
        self.settings.require("workspace_id")
        name: str | None = self.workspaces.get(str(self.settings.workspace_id)).workspace_name
        return name

    @property
    def oss_bucket_name(self) -> str | None:
        """The bucket for code, local inputs and outputs."""
        return self.settings.oss_bucket_name

    @property
    def oss_endpoint(self) -> str:
        """The endpoint of OSS: a host, as in `oss://bucket.<host>/key`, also that of the embedded service.

        oss2 and sessions take it. `session.settings.oss_url` is the URL, for libraries that would use TLS. An
        endpoint that needs its scheme keeps it: `http://` of another machine, `https://` of this one.
        """
        return short_endpoint(self.settings.oss_url)

    @property
    def credential_config(self) -> Any:
        """The key that the session was given, as a `Config` of the package alibabacloud_credentials.

        It is None for the key that Alibaba Cloud's tools use here: their default. `Session(credential_config=…)`
        and `alibabacloud_credentials.client.Client(…)` take both.
        """
        if self._default_key:
            return None
        from alibabacloud_credentials.models import Config  # for weight: it loads an HTTP client

        key = self.credentials()
        if key.bearer_token:
            return Config(type="bearer", bearer_token=key.bearer_token)
        kind = "sts" if key.security_token else "access_key"
        return Config(
            type=kind,
            access_key_id=key.access_key_id,
            access_key_secret=key.access_key_secret,
            security_token=key.security_token,
        )

    @property
    def network(self) -> Network:
        """The hosts of the region that are used."""
        return Network(self.settings.network or "PUBLIC")

    def patch_oss_endpoint(self, oss_uri: str) -> str:
        """The URI with the session's endpoint, `oss://bucket.<host>/key`; one that names an endpoint as it is."""
        parts = OssUri.parse(oss_uri)
        host = parts.endpoint or self.settings.oss_url.rpartition("://")[2]
        return str(OssUri(parts.bucket, parts.key, host))

    @property
    def is_inner(self) -> bool:
        """False: regions that only Alibaba's own staff can use are not known here."""
        return False

    @property
    def console_uri(self) -> str:
        """The console of PAI."""
        return "https://pai.console.aliyun.com/console"

    @property
    def oss_bucket(self) -> Any:
        """The bucket of the session as an `oss2.Bucket`.

        Raises:
            SettingsError: no bucket is set.
        """
        self.settings.require("oss_bucket_name")
        return self.get_oss_bucket(str(self.settings.oss_bucket_name))

    def get_oss_bucket(self, bucket_name: str, endpoint: str | None = None) -> Any:
        """A bucket as an `oss2.Bucket`, with the key of the session.

        Args:
            bucket_name: the bucket.
            endpoint: its endpoint; the session's otherwise.

        Raises:
            UntrustedEndpointError: the endpoint is neither OSS nor named in the settings.
        """
        host = None if endpoint is None else endpoint.rpartition("://")[2].rstrip("/")
        return self.files().oss2_bucket(OssUri(bucket_name, endpoint=host))

    def upload_data(self, path: str | Path, bucket: str | None = None, key_prefix: str = "data") -> str:
        """Put a file or a folder below a prefix of a bucket.

        Args:
            path: a file, or a folder, of which all files are taken.
            bucket: the name of the bucket; the session's otherwise.
            key_prefix: the folder in the bucket.

        Returns:
            The URI, as an input of a job takes it.
        """
        if bucket is None:
            self.settings.require("oss_bucket_name")
        return self.upload(path, f"oss://{bucket or self.settings.oss_bucket_name}/{key_prefix.strip('/')}/")

    def save_config(self, config_path: str | Path | None = None) -> None:
        """Write the settings into the config file, keys left out; see `pai_sdk._core.config.settings.save_config`.

        Raises:
            SettingsError: the session is on the embedded service, whose port may change.
        """
        if self.is_embedded:
            raise SettingsError(
                "the settings of the embedded service are not saved: its port may change, and it ends when idle. "
                "Use Session.embedded() in each program; it starts the service again and finds its jobs"
            )
        save_config(self.settings, config_path)
