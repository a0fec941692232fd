"""A session: settings, keys and the backends made of them. Every job is submitted through one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import quote

from pai_sdk._client import submission
from pai_sdk._client.backend.backends import Backends
from pai_sdk._client.backend.base import Backend, Plan
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.specs import backend_for_job, backend_for_type, checked_api
from pai_sdk._client.job.job_list import JobList, attach_to_job
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.config.credentials import Credentials, CredentialsProvider, provider_of, static_credentials
from pai_sdk._core.config.settings import Settings, load_settings
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.names.hints import wrong_type, wrong_value
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.paths import parse_path
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._data.trace.odps import SessionTables
from pai_sdk._wire.pai.arguments import check_filters, check_job_id
from pai_sdk.errors import InvalidInputError

if TYPE_CHECKING:
    from pai_sdk._client.api.algorithms import Algorithms
    from pai_sdk._client.api.capacity import InstanceTypes, Quotas
    from pai_sdk._client.api.experiments import Experiments
    from pai_sdk._client.api.images import Images
    from pai_sdk._client.api.models import Models
    from pai_sdk._client.api.schedules import Schedules
    from pai_sdk._client.api.service_runs import ServiceRuns
    from pai_sdk._client.api.users import ServiceUsers
    from pai_sdk._client.api.workspaces import Workspaces
    from pai_sdk._client.backend.local import LocalBackend
    from pai_sdk._data.run.store.run_store import RunStore
    from pai_sdk._data.run.watch.manager import RunManager
    from pai_sdk._data.storage.oss.client import OssClient


@short_tracebacks
class Session(Aliased):
    """The services that jobs go to, and the key for them.

    Nothing is sent when a session is made. What is not given comes from the environment (`PAI_REGION_ID`, …), then
    from `~/.pai/config.json`; keys come from the Alibaba Cloud credentials chain.

    Its methods send: they raise an `ApiError` when the service refuses, and a `ConnectionFailedError` when it does
    not respond, after the retries of `retry`. A session may be used from several threads.

    Attributes:
        settings: the settings in force, each with its source.
        credentials: a function that returns the access key that is valid now.

    Example:
        >>> session = Session("cn-hangzhou", "12345", oss_bucket_name="models",
        ...                   access_key_id="LTAI-example", access_key_secret="a-secret")
        >>> session.settings.region_id
        'cn-hangzhou'
        >>> session
        <Session cn-hangzhou workspace=12345 bucket=models>
    """

    @checks_keywords
    def __init__(
        self,
        region_id: str | None = None,
        workspace_id: str | None = None,
        *,
        oss_bucket_name: str | None = None,
        oss_endpoint: str | None = None,
        endpoint: str | None = None,
        aiworkspace_endpoint: str | None = None,
        dlc_endpoint: str | None = None,
        api: str | None = None,
        network: str | None = None,
        trusted_oss_endpoints: str | None = None,
        access_key_id: str | None = None,
        access_key_secret: str | None = None,
        security_token: str | None = None,
        credentials: CredentialsProvider | Credentials | None = None,
        retry: RetryPolicy | None = None,
        config_path: str | Path | None = None,
        profile: str | None = None,
    ) -> None:
        """Collect the settings.

        Args:
            region_id: region of PAI and OSS, such as `cn-hangzhou`.
            workspace_id: the workspace jobs belong to, such as `12345`.
            oss_bucket_name: bucket for code, local inputs and outputs.
            oss_endpoint: host of OSS, when not the region's; `http://…` turns TLS off, and so does a host that is
                this machine.
            endpoint: host of the PAI API, when not the region's; likewise.
            aiworkspace_endpoint: host of the workspace API, likewise.
            dlc_endpoint: host of the API of DLC, when not the region's or `endpoint`, which a service of your own
                has for all.
            api: how jobs are described to the service, where a submitter does not say it: `trainingjob`, or `dlc`
                for jobs of DLC.
            network: `PUBLIC` or `VPC`: which of the region's hosts.
            trusted_oss_endpoints: further hosts that an `oss://` URI may name, with commas between them. Requests,
                and with them a token, go to `oss_endpoint` and to the OSS of Alibaba Cloud, and nowhere else.
            access_key_id: a key; goes with `access_key_secret`.
            access_key_secret: its secret.
            security_token: the token of a temporary key.
            credentials: a key, a function that gives one, or a `Config` of the package alibabacloud_credentials,
                instead of the three above.
            retry: the policy for everything that goes over the network.
            config_path: another file than `~/.pai/config.json`.
            profile: a profile of that file, in place of `PAI_PROFILE`. Settings come from the arguments
                and from the profile only; "" uses none.

        Raises:
            SettingsError: a setting is malformed, or conflicts with another, or there is no such profile.
            InvalidInputError: a key is given by half or twice, or `retry` is no policy.
        """
        self.settings: Settings = load_settings(
            {
                "region_id": region_id,
                "workspace_id": workspace_id,
                "oss_bucket_name": oss_bucket_name,
                "oss_endpoint": oss_endpoint,
                "endpoint": endpoint,
                "aiworkspace_endpoint": aiworkspace_endpoint,
                "dlc_endpoint": dlc_endpoint,
                "api": api,
                "network": network,
                "trusted_oss_endpoints": trusted_oss_endpoints,
            },
            config_path=config_path,
            profile=profile,
        )
        self.credentials = provider_of(access_key_id, access_key_secret, security_token, credentials)
        self._default_key = not (access_key_id or credentials)
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidInputError([wrong_type("retry", retry, "a RetryPolicy")])
        # No reference from the backends back to the session: one that is dropped closes its connections at once,
        # without waiting for the garbage collector.
        self._embedded = _EmbeddedService()
        self._backends = Backends(
            Connection(self.settings, self.credentials, retry, find_again=self._embedded.start_again)
        )
        self._backends.connection.open_embedded = Session.embedded

    @classmethod
    def embedded(
        cls,
        data_dir: str | Path | None = None,
        *,
        executor: str | None = None,
        executor_options: Mapping[str, str] | None = None,
    ) -> Session:
        """A session on the embedded service: no account, no bucket, no Docker. It is started when it does not run.

        Args:
            data_dir: the folder with its jobs and objects; `~/.pai/service` otherwise.
            executor: what runs the jobs: `process` (the default), `docker`, `ray`, `slurm`, or one of an
                installed package. A data folder keeps its executor; each has a default folder of its own.
            executor_options: what only this executor understands, such as the `address` of a cluster.

        Raises:
            ServiceStartError: it does not come up, the extra `[service]` is not installed, or the data folder
                belongs to another executor.
        """
        folder = None if data_dir is None else parse_path(data_dir, "data_dir")
        info = _ensure_running(folder, executor, executor_options or {})
        session = cls(
            info.region_id,
            info.workspace_id,
            oss_bucket_name=info.bucket,
            oss_endpoint=info.oss_endpoint,
            endpoint=info.endpoint,
            aiworkspace_endpoint=info.endpoint,
            credentials=static_credentials(info.access_key_id, info.access_key_secret),
            profile="",
        )
        session._embedded.data_dir = session._backends.connection.embedded_dir = info.data_dir
        session._backends.connection.uses_images = info.uses_images
        return session

    @classmethod
    def ray(cls, address: str = "auto", *, data_dir: str | Path | None = None) -> Session:
        """A session whose jobs run on a Ray cluster, by an embedded service of this machine.

        Args:
            address: `auto` for the cluster of the Ray node on this machine, `host:port` for the same by its head's
                address, `ray://host:port` for a cluster elsewhere.
            data_dir: the folder with its jobs and objects; one of its own for each address otherwise.

        Raises:
            ServiceStartError: the cluster does not respond, or an extra (`[service]`, `[ray]`) is not installed.

        Example:
            >>> session = Session.ray("ray://head:10001")  # doctest: +SKIP
        """
        return cls.embedded(data_dir, executor="ray", executor_options={"address": address})

    def backend_for(self, instance_type: str | None, api: str | None = None) -> Backend:
        """The backend of an instance type; for None, the service.

        Args:
            instance_type: such as `ecs.c6.large`, or `local`.
            api: `trainingjob` or `dlc`; that of the settings otherwise.

        Raises:
            SettingsError: a setting that the backend needs is missing; all missing ones are named.
        """
        backend: Backend = self._backends.at(backend_for_type(instance_type, api or self.settings.api))
        return backend

    @property
    def region_id(self) -> str | None:
        """The region of PAI and OSS."""
        return self.settings.region_id

    @property
    def workspace_id(self) -> str | None:
        """The workspace that jobs belong to."""
        return self.settings.workspace_id

    @property
    def is_embedded(self) -> bool:
        """True where jobs run on the embedded service of this machine."""
        return self._embedded.data_dir is not None

    @property
    def embedded_folder(self) -> Path | None:
        """The folder of the embedded service that jobs run on; None for another service."""
        return self._embedded.data_dir

    @property
    def runs_processes(self) -> bool:
        """True where jobs are known to run as processes of a machine, without their images."""
        return not self._backends.connection.uses_images

    @property
    def local(self) -> LocalBackend:
        """The backend for `instance_type="local"`: Docker on this machine, no account needed."""
        return self._backends.local

    @property
    def algorithms(self) -> Algorithms:
        """The registered algorithms of the workspace: to be created, listed, found, changed, deleted.

        Example:
            >>> algorithm_id = session.algorithms.create("digits")  # doctest: +SKIP
            >>> session.algorithms.create_version(algorithm_id, "v1", spec)  # doctest: +SKIP
        """
        return self._backends.service.algorithms

    @property
    def experiments(self) -> Experiments:
        """The experiments of the workspace, as the service describes them; `Experiment` is a handle on one.

        Example:
            >>> [each.name for each in session.experiments.list()]  # doctest: +SKIP
            ['digits']
        """
        return self._backends.service.experiments

    @property
    def models(self) -> Models:
        """The registered models of the workspace; `RegisteredModel` is a handle on one, which trains it further.

        Example:
            >>> model_id = session.models.create("digits")  # doctest: +SKIP
            >>> session.models.create_version(model_id, "oss://m/digits/", training_spec=spec)  # doctest: +SKIP
            '0.1.0'
        """
        return self._backends.service.models

    @property
    def images(self) -> Images:
        """The images that the service offers; `pai_sdk.jobs.retrieve` finds one by framework and version.

        Example:
            >>> [each.image_uri for each in session.images.list(name="xgboost")]  # doctest: +SKIP
            ['registry.cn-hangzhou.aliyuncs.com/pai-dlc/xgboost-training:1.6.0-cpu-py36-ubuntu18.04']
        """
        return self._backends.service.images

    @property
    def runs(self) -> ServiceRuns:
        """The runs of the service's jobs, read over its API: lists, points, comparisons.

        Services of this package have them, Alibaba Cloud's has not: `session.runs.is_offered()`.

        Example:
            >>> session.runs.scalars("train-x7k2", "loss").last()  # doctest: +SKIP
            Point(wall=1795342218.1, step=3, value=0.125)
        """
        return self._backends.service.runs

    @property
    def users(self) -> ServiceUsers:
        """The users of a service of your own: add, list, revoke keys. The session's key is an administrator's.

        Example:
            >>> session.users.add("alice", right="submit")  # doctest: +SKIP
        """
        return self._backends.service.users

    @property
    def schedules(self) -> Schedules[Plan]:
        """The schedules of a service of your own, which create jobs by cron: create, list, pause, delete.

        Example:
            >>> session.schedules.create("nightly", "0 3 * * *", estimator.plan())  # doctest: +SKIP
        """
        return self._backends.service.schedules

    @property
    def workspaces(self) -> Workspaces:
        """The workspaces that are visible to the key, with their ids.

        Example:
            >>> [(each.workspace_name, each.workspace_id) for each in session.workspaces.list()]  # doctest: +SKIP
            [('vision', '12345')]
        """
        return self._backends.service.workspaces

    @property
    def instance_types(self) -> InstanceTypes:
        """The instance types of the region: sizes, whether there are some, prices of spot instances.

        Example:
            >>> [each.instance_type for each in session.instance_types.list(accelerator="GPU")]  # doctest: +SKIP
            ['ecs.gn7i-c8g1.2xlarge']
        """
        return self._backends.service.instance_types

    @property
    def quotas(self) -> Quotas:
        """What runs and waits in the quotas of the account on Alibaba Cloud.

        Example:
            >>> [each.workload_id for each in session.quotas.workloads("quota1x")]  # doctest: +SKIP
            ['dlc1xjcumbfm7aai']
        """
        return self._backends.service.quotas

    @property
    def tables(self) -> SessionTables:
        """The tables that this session reaches: those of the service, or MaxCompute's in the region.

        Example:
            >>> writer = TraceWriter({"loss": "double"}, session.tables.sink("losses"))  # doctest: +SKIP
            >>> session.tables.client().get_table("losses").open_reader().count  # doctest: +SKIP
            3
        """
        return SessionTables(self._backends.service.endpoint, self.settings.region_id, self.credentials)

    def submit(self, plan: Plan, *, instance_type: str | None = None) -> TrainingJob:
        """Submit a plan.

        Exactly `plan.request` is sent. A plan becomes one job: to run the same thing again, plan again, so that
        each job has its own name and output folders.

        Args:
            plan: from `Processor.plan()`, `Estimator.plan()` or `Plan.load()`.
            instance_type: for which it was planned, if not for a service.

        Returns:
            The job, just created.

        Raises:
            InvalidInputError: the plan was submitted already, or was loaded from a file and files it needs are
                not in OSS.
            SettingsError: a setting or a key that the job needs is missing.
            TransferError: code or inputs could not be uploaded; there is no job.
            CheckpointError: the checkpoint that the job resumes from was changed since it was planned.
            LocalRunError: with `instance_type="local"`, there is no Docker engine or no such image.
        """
        if not isinstance(plan, Plan):
            raise InvalidInputError([wrong_type("plan", plan, "a Plan", "as Estimator.plan() returns it")])
        compute = plan.request.compute_resource
        backend = self.backend_for(instance_type or (compute.ecs_spec if compute else None), plan.api)
        resume = plan.resume
        prepare = (lambda: None) if resume is None else (lambda: resume.copy_to_target(self))
        job = TrainingJob(submission.submit(plan, backend, prepare=prepare), backend)
        # After the create: its response announces what the service does itself.
        job.notifications = () if backend.capabilities.notifies else plan.notify
        return job

    @checks_keywords
    def get_job(self, job_id: str) -> TrainingJob:
        """Attach to a job by its id, or by a name that only one job has.

        Raises:
            InvalidInputError: the id is no string, or empty, or it is the name of several jobs.
            NotFoundError: there is no such job.
        """
        check_job_id(job_id)
        spec = backend_for_job(job_id)
        backend = self.backend_for(next(iter(spec.instance_types), None), spec.capabilities.api)
        return attach_to_job(job_id, backend)

    @checks_keywords
    def list_jobs(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        local: bool = False,
        skip: int = 0,
        api: str | None = None,
    ) -> JobList:
        """List jobs, the newest first; pages are fetched when they are needed.

        The result prints as a table and takes indexes and slices: `session.list_jobs()[:10]`; `len()` fetches all.

        Args:
            status: only jobs in this status, in any case; `Succeeded` is `Succeed`.
            name: only jobs with this text in their name.
            labels: only jobs with all of these labels.
            local: those in Docker on this machine instead of those of the service.
            skip: the number of newest jobs to leave out.
            api: `dlc` for the jobs of DLC, `trainingjob` for training jobs; that of the settings otherwise.

        Raises:
            InvalidInputError: there is no such status, or the name or the labels are no strings.
        """
        status = check_filters(status, name, labels)
        backend = self.local if local else self.backend_for(None, checked_api(api))
        records = backend.list(status=status, name=name, labels=labels, skip=skip)
        return JobList(TrainingJob(record.training_job_id, backend, record=record) for record in records)

    def watch(
        self,
        *prefixes: str | Path | RunStore,
        local: bool = False,
        api: str | None = None,
        most: int = 1000,
        refresh_s: float = 0.5,
        memory_bytes: int = 512 << 20,
    ) -> RunManager:
        """Watch what the jobs of this session report: metrics, hyperparameters, status, of all of them at once.

        Args:
            prefixes: further folders of runs, beside the jobs.
            local: the jobs in Docker on this machine instead of those of the service.
            api: `dlc` for the jobs of DLC, `trainingjob` for training jobs; that of the settings otherwise.
            most: the maximum number of jobs; the newest ones are watched.
            refresh_s: the poll interval of their event files, in seconds.
            memory_bytes: the limit of the points in memory.

        Returns:
            A manager, not yet started; a run has the id of its job.

        Raises:
            MissingExtraError: numpy is not installed.
            InvalidInputError: an argument cannot be used.

        Example:
            >>> def best(session: Session) -> list[str]:
            ...     with session.watch() as manager:
            ...         manager.wait_until_loaded()
            ...         page = manager.runs("status=Succeeded", sort="metrics.loss", limit=3)
            ...         return [run.id for run in page.runs]
        """
        from pai_sdk._client.job.runs_of_jobs import RunsOfJobs
        from pai_sdk._data.run.watch.manager import RunManager

        checked_api(api)
        jobs = RunsOfJobs(lambda: islice(self.list_jobs(local=local, api=api), most))
        return RunManager(
            *prefixes,
            records=jobs,
            refresh_s=refresh_s,
            memory_bytes=memory_bytes,
            session=self,
            opener=jobs.open,
        )

    def upload(
        self,
        path: str | Path,
        uri: str,
        *,
        progress: bool = True,
        links: Literal["follow", "inside", "error"] = "follow",
    ) -> str:
        """Upload a file or a folder to OSS. `run()` and `fit()` upload the local files of a job themselves.

        Args:
            path: a file, or a folder, of which all files are taken.
            uri: `oss://bucket/key`: for a folder, the one its files go into; for a file, its object, or a folder
                (a `/` at its end) to put it in.
            progress: show a bar.
            links: the policy for symbolic links in the folder. `follow` uploads their targets, wherever they are,
                as in the cache of Hugging Face; with `inside`, a link out of the folder is an error; with
                `error`, each link is.

        Returns:
            The URI of the object or folder, as an input of a job takes it.

        Raises:
            InvalidInputError: the URI is none of OSS, there is nothing to upload, or there is a link that is not
                taken.
            TransferError: some files could not be uploaded; the others are.

        Example:
            >>> session.upload("data", "oss://models/datasets/points/")  # doctest: +SKIP
            'oss://models/datasets/points/'
        """
        from pai_sdk._data.storage.transfer import upload

        where = OssUri.parse(uri)  # a malformed URI raises before the transfer starts
        source = parse_path(path, "path")
        if links not in ("follow", "inside", "error"):
            raise InvalidInputError([wrong_value("links", links, "'follow', 'inside' or 'error'")])
        return str(upload(self._backends.service.files(), source, where, progress=progress, links=links))

    def download(self, uri: str, path: str | Path, *, progress: bool = True) -> Path:
        """Download a file or a folder from OSS. For the outputs of a job, use `job.download()`.

        Args:
            uri: `oss://bucket/key`, a file or a folder.
            path: for a folder, the local folder its content goes into; for a file, the local file, or an existing
                folder to put it in.
            progress: show a bar.

        Returns:
            The local file or folder.

        Raises:
            InvalidInputError: the URI is none of OSS.
            StorageError: nothing is there.
            TransferError: some files could not be downloaded; the others are complete.
        """
        from pai_sdk._data.storage.transfer import download

        where, target = OssUri.parse(uri), parse_path(path, "path")
        return download(self._backends.service.files(), where, target, progress=progress)

    @staticmethod
    def get_storage_path_by_category(category: str, dir_name: str | None = None) -> str:
        """The key of a folder for files of a kind: `pai/<category>/<dir_name>/`; the time without a `dir_name`."""
        return f"pai/{category}/{dir_name or time.strftime('%Y%m%d_%H%M%S')}/"

    def files(self) -> OssClient:
        """The client of the object storage, with the keys of this session. It is closed with the session."""
        return self._backends.service.files()

    def new_page_link(self, job_id: str | None = None) -> str:
        """A link to the page of the service, with its jobs and curves. It signs in one browser, within a minute.

        Args:
            job_id: a job to go straight to.

        Raises:
            InvalidInputError: the service has no page: Alibaba Cloud shows jobs in its console.
            NotFoundError: there is no such job.

        Example:
            >>> Session.embedded().new_page_link()  # doctest: +SKIP
            'http://127.0.0.1:40213/ui/#code=3vR…'
        """
        link = self._backends.service.new_page_link(job_id)
        # Code for notebooks, which the page offers to copy, then uses the same profile.
        return f"{link}&profile={quote(self.settings.profile)}" if self.settings.profile else link

    def close(self) -> None:
        """Close all connections. Jobs continue, and a session that is used again connects again."""
        self._backends.close()

    def __enter__(self) -> Session:
        """The session itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self  # copies of an estimator submit where it does

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Session cannot be pickled, because it holds keys and connections; create one in the other process. "
            "An estimator with session=None can be pickled; it uses the default session of that process"
        )

    def __repr__(self) -> str:
        settings = self.settings
        page = f" page={settings.endpoint}/ui/" if self.is_embedded else ""
        workspace, bucket = settings.workspace_id or "?", settings.oss_bucket_name or "?"
        return f"<Session {settings.region_id or '?'} workspace={workspace} bucket={bucket}{page}>"


class _EmbeddedService:
    """The embedded service of a session, if the session uses it."""

    def __init__(self) -> None:
        self.data_dir: Path | None = None  # None for a session on another service

    def start_again(self) -> str | None:
        """Starts the service again, which stops when idle and can be killed; returns its endpoint."""
        if self.data_dir is None:
            return None
        # Not the last endpoint: the port changes if another process uses it.
        return str(_ensure_running(self.data_dir, None, {}).endpoint)


def _ensure_running(data_dir: Path | None, executor: str | None, options: Mapping[str, str]) -> Any:
    """Returns the embedded service of a folder, started if it does not run; its libraries are loaded here."""
    service = import_module("pai_sdk._service.embedded")  # by name: the client does not import the service
    return service.ensure_running(
        data_dir, executor=service.ChosenExecutor(executor, dict(options)) if executor else None
    )
