"""From a request to running containers: all of them, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pai_sdk.agent import memory
from pai_sdk.agent.distributed import MASTER_PORT, TF_PORT, Rendezvous, free_ports, rendezvous_variables
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.errors import ImageError, InvalidInputError, LocalRunError, PaiError, Problem
from pai_sdk.execution import contract
from pai_sdk.execution.base import LaunchSpec
from pai_sdk.execution.docker.container import (
    SHARED_DIR,
    ContainerLimits,
    ContainerMounts,
    create_arguments,
    environment_file,
    gpu_share,
    labels,
)
from pai_sdk.execution.docker.ending import stopped_before_start
from pai_sdk.execution.docker.engine import Engine
from pai_sdk.execution.docker.images import PullGivenUp, ensure_image
from pai_sdk.execution.docker.options import LocalOptions
from pai_sdk.execution.docker.requirements_cache import KeptRequirements, RequirementsCache
from pai_sdk.execution.docker.shared_folder import SharedFolder
from pai_sdk.run.report.layout import RunLayout

__all__ = ["Launch"]


@dataclass(frozen=True)
class Launch:
    """The start of one job's containers.

    Attributes:
        engine: where they run.
        spec: the job.
        options: used instead of the tags of the request.
        pip_cache: a folder for pip's downloads.
        requirements_cache: folders with installed requirements.
    """

    engine: Engine
    spec: LaunchSpec
    options: LocalOptions | None = None
    pip_cache: Path | None = None
    requirements_cache: RequirementsCache | None = None

    def run(self, *, progress: bool, is_closing: Callable[[], bool] = lambda: False) -> None:
        """Create and start all containers, then let the instances begin. After a failure the caller removes them.

        A job that is stopped while its image is pulled ends without containers.

        Args:
            progress: show a bar while the image is pulled.
            is_closing: whether the pull is to be cancelled because the caller ends.

        Raises:
            InvalidInputError: the request cannot become containers.
            LocalRunError: the engine refused.
            PullGivenUp: `is_closing` returned True.
        """
        from docker.errors import APIError
        from requests import RequestException

        image_uri = self._image_uri()
        request, instances = self.spec.request, self.spec.instances
        options = self.options or LocalOptions.of_tags(request.settings.tags if request.settings else None)
        limits = ContainerLimits.of(request, options)
        shared = SharedFolder(self.sandbox.shared_dir, instances)
        user, give_to = self._user(options)
        self.mounts.prepare(self.sandbox, instances)
        algorithm = request.algorithm_spec
        if give_to and algorithm and algorithm.metric_definitions:  # made by the job, it could not be written to
            Path(RunLayout(str(self.sandbox.ml / "output")).log_metrics).mkdir(parents=True, exist_ok=True)
        shared.prepare(self._environments(options, limits, give_to=give_to), self._requirements())
        if os.getuid() == 0 and user != "0:0":
            self._give(user)
        journal, job = Journal(self.sandbox.state_dir), self._job(options, limits, give_to)

        def is_given_up() -> bool:
            return shared.stop_request is not None or is_closing()

        try:
            image = ensure_image(self.engine, image_uri, progress=progress, is_given_up=is_given_up)
        except PullGivenUp:
            if shared.stop_request is None:
                raise
            journal.write_job(job)
            journal.write_state(stopped_before_start(shared))
            shared.forget_secrets()
            return
        # From here on the engine may have containers of the job, which a later `state` or `remove` has to find.
        journal.write_job(job)
        try:
            network = self._network(options, count=len(instances))
            with self._kept_requirements(image_uri, image, user, give_to) as kept:
                for instance in instances:
                    arguments = create_arguments(
                        self.sandbox,
                        self.spec.job_id,
                        request,
                        instance,
                        image=image,
                        mounts=replace(self.mounts, requirements=kept),
                        limits=limits,
                        user=user,
                        network=network,
                        grace_s=options.grace_s,
                    )
                    self.engine.start_container(arguments)
        except PaiError:
            raise
        except APIError as error:
            raise _explained(error, image_uri, self.mounts) from error
        except RequestException as error:
            raise self.engine.lost(error, while_doing="it started the job's containers") from error
        except Exception as error:
            raise _explained(error, image_uri, self.mounts) from error
        shared.go()

    def _image_uri(self) -> str:
        """The image of the job."""
        algorithm = self.spec.request.algorithm_spec
        if algorithm is None or not algorithm.image:
            raise InvalidInputError([Problem("algorithm_spec.image", "is missing: containers are made from one")])
        return algorithm.image

    @property
    def sandbox(self) -> Sandbox:
        """The job's folder."""
        return self.spec.sandbox

    @property
    def mounts(self) -> ContainerMounts:
        """The files and folders of this machine that the containers see."""
        return ContainerMounts(self.spec.mounts.inputs, self.spec.mounts.outputs, self.pip_cache)

    def _job(self, options: LocalOptions, limits: ContainerLimits, give_to: str) -> dict[str, Any]:
        """The facts that are needed after the start."""
        return {
            "job_id": self.spec.job_id,
            "instances": [asdict(instance) for instance in self.spec.instances],
            "grace_s": options.grace_s,
            "give_to": give_to,
            "outputs": {name: str(path) for name, path in self.mounts.all_outputs(self.sandbox).items()},
            "memory_bytes": limits.memory_bytes,
            "kernel_kills": memory.kernel_kills(),
            "launched_at": time.time(),
            "max_running_s": self.spec.limits.max_running_s,
        }

    def _user(self, options: LocalOptions) -> tuple[str, str]:
        """The user of the containers, and the owner of the files at the end if that is another one."""
        me = f"{os.getuid()}:{os.getgid()}"
        if self.engine.is_rootless:  # root inside is the caller outside
            return "0:0", ""
        if options.user == "root":
            return "0:0", "" if os.getuid() == 0 else me
        user = options.user or me
        if os.getuid() and user.partition(":")[0] != str(os.getuid()):
            what = f"only root may start containers as another user, and you are {os.getuid()}"
            raise InvalidInputError([Problem("the local option user", what, "leave it out, or take 'root'")])
        return user, ""

    def _give(self, user: str) -> None:
        """Give what a job writes to its user; what an output holds already stays as it is."""
        uid, _, gid = user.partition(":")
        places = [
            self.sandbox.usercode,
            self.sandbox.ml / "output",
            self.sandbox.logs_dir,
            self.sandbox.shared_dir,
        ]
        places += [path for path in self.mounts.outputs.values() if not any(path.iterdir())]
        for place in places:
            for path in (place, *place.rglob("*")):
                os.chown(path, int(uid), int(gid or 0), follow_symlinks=False)

    def _network(self, options: LocalOptions, *, count: int) -> str | None:
        """The network that the instances of a job share, by whose names they find each other."""
        if count > 1 and options.network in ("bridge", "default", "none"):
            what = f"instances do not find each other by name in {options.network!r}"
            raise InvalidInputError([Problem("the local option network", what, "leave it out, or take 'host'")])
        if options.network or count == 1:
            return options.network
        name = f"pai-{self.spec.job_id}"
        self.engine.client.networks.create(name, driver="bridge", labels=labels(self.spec.job_id, self.sandbox))
        return name

    def _environments(self, options: LocalOptions, limits: ContainerLimits, *, give_to: str) -> dict[str, str]:
        """The files of each instance: its variables, and what the script itself needs to know."""
        instances = self.spec.instances
        share = gpu_share(limits, instances)
        if options.network == "host":
            meeting = Rendezvous.on_loopback(free_ports(1 + len(instances)), nproc_per_node=share)
        elif len(instances) == 1:  # its name is in no network; its ports are its own
            meeting = Rendezvous.on_loopback([MASTER_PORT, TF_PORT], nproc_per_node=share)
        else:
            meeting = Rendezvous.of_hosts([i.name for i in instances], nproc_per_node=share)
        job_type = contract.job_type(self.spec.request)
        texts = {}
        for instance, environment in zip(instances, self.spec.environments, strict=True):
            shared = rendezvous_variables(instance, meeting, job_type=job_type)
            variables = {**self._default_environment(), **shared, **environment.at("/ml")}
            own = {
                "PAI_SDK_RANK": instance.rank,
                "PAI_SDK_LIMIT_S": int(self.spec.limits.max_running_s or 0),
                "PAI_SDK_GRACE_S": options.grace_s,
                "PAI_SDK_PREEMPT_AFTER_S": options.preempt_after_s,
                "PAI_SDK_GIVE_TO": give_to,
                "PAI_SDK_UMASK": _umask(),
            }
            texts[f"{instance.name}.settings"] = "".join(f"{name}={value}\n" for name, value in own.items())
            texts[f"{instance.name}.env"] = environment_file(variables)
        return texts

    def _default_environment(self) -> dict[str, str]:
        """Defaults of variables; the values of the request win."""
        variables = {"PYTHONUNBUFFERED": "1"}
        if os.getuid():  # a user without an entry in the image's /etc/passwd has no home there
            variables |= {"HOME": f"{SHARED_DIR}/home", "USER": "pai", "LOGNAME": "pai"}
        if self.mounts.pip_cache:
            variables["PIP_CACHE_DIR"] = f"{SHARED_DIR}/pip-cache"
        return variables

    def _requirements(self) -> list[str]:
        lines = list(self.spec.request.python_requirements or ())
        if self._file_of_code.is_file():
            lines.append("-r /ml/usercode/requirements.txt")
        return lines

    @property
    def _file_of_code(self) -> Path:
        return self.sandbox.usercode / "requirements.txt"

    @contextmanager
    def _kept_requirements(
        self, image_uri: str, image: str, user: str, give_to: str
    ) -> Iterator[KeptRequirements | None]:
        """The folder in which the requirements are kept for later jobs; None if there is nothing to keep."""
        texts = ["".join(f"{line}\n" for line in self.spec.request.python_requirements or ())]
        if self._file_of_code.is_file():
            texts.append(self._file_of_code.read_text(encoding="utf-8", errors="backslashreplace"))
        # Files that root's containers write are given back at the end of a job: too late for other jobs.
        if self.requirements_cache is None or give_to or not any(text.strip() for text in texts):
            yield None
            return
        variables = self.spec.environments[0].at("/ml")
        with self.requirements_cache.use(
            texts, image=image_uri, image_id=image, user=user, variables=variables
        ) as kept:
            if kept and not kept.is_complete and os.getuid() == 0:
                os.chown(kept.folder, *(int(part) for part in f"{user}:0".split(":")[:2]))
            yield kept


def _umask() -> str:
    """The caller's umask, so that a job's files can be read by those who may read the caller's."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return "022"
    return next((line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), "022")


def _explained(error: Exception, image: str, mounts: ContainerMounts) -> PaiError:
    """The error to raise for a refusal of the engine."""
    said = str(getattr(error, "explanation", None) or error).strip()
    if "/bin/sh" in said and ("no such file" in said or "not found" in said):
        return ImageError(f"the image {image!r} has no /bin/sh, which every job needs; take one with a shell")
    if "bind source path does not exist" in said:
        missing = [f"{channel}: {path}" for channel, path in mounts.inputs.items() if not path.exists()]
        return LocalRunError(f"an input is not there any more: {', '.join(missing) or said}")
    if "could not select device driver" in said or "nvidia" in said.lower():
        return LocalRunError(
            f"the engine cannot give GPUs to containers ({said}); install the NVIDIA container toolkit, or take "
            "instance_type='local'"
        )
    if "address pool" in said:
        return LocalRunError(
            f"the engine has no addresses left for one more network ({said}); `pai-sdk prune` and `docker network "
            "prune` remove unused ones"
        )
    return LocalRunError(f"the Docker engine refused the job: {said}")
