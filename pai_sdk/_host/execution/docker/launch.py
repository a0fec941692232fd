"""From a request to running containers: all of them, or none."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._host.agent import memory
from pai_sdk._host.agent.distributed import MASTER_PORT, TF_PORT, Rendezvous, free_ports, rendezvous_variables
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution import contract
from pai_sdk._host.execution.base import LaunchSpec
from pai_sdk._host.execution.docker.container import (
    SHARED_DIR,
    ContainerLimits,
    ContainerMounts,
    create_arguments,
    environment_file,
    gpu_share,
    labels,
    role_limits,
)
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._host.execution.docker.final_state import stopped_before_start
from pai_sdk._host.execution.docker.images import PullAbandoned, ensure_image
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._host.execution.docker.requirements_cache import CachedRequirements, RequirementsCache
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk._host.execution.roles import has_roles, start_conditions
from pai_sdk.errors import ImageError, InvalidInputError, LocalRunError, PaiError, Problem


@dataclass(frozen=True)
class Launch:
    """The start of one job's containers."""

    engine: Engine
    spec: LaunchSpec
    options: LocalOptions | None = None  # used instead of the tags of the request
    pip_cache: Path | None = None
    requirements_cache: RequirementsCache | None = None

    def run(self, *, progress: bool, is_closing: Callable[[], bool] = lambda: False) -> None:
        """Creates and starts all containers, then releases the instances; the caller removes them on a failure."""
        from docker.errors import APIError
        from requests import RequestException

        image_uris = self._image_uris()
        request, instances = self.spec.request, self.spec.instances
        options = self.options or LocalOptions.of_tags(request.settings.tags if request.settings else None)
        limits = role_limits(request, options)
        shared = SharedFolder(self.sandbox.shared_dir, instances)
        user, give_to = self._user(options)
        self.mounts.prepare(self.sandbox, instances)
        if give_to:
            self._create_metrics_folder()
        shared.prepare(self._environments(options, limits, give_to=give_to), self._requirements())
        if os.getuid() == 0 and user != "0:0":
            self._give(user)
        journal, job = Journal(self.sandbox.state_dir), self._job(options, limits, give_to)

        def should_cancel() -> bool:
            return shared.stop_request is not None or is_closing()

        try:
            images = {
                uri: ensure_image(self.engine, uri, progress=progress, should_cancel=should_cancel)
                for uri in dict.fromkeys(image_uris)
            }
        except PullAbandoned:
            if shared.stop_request is None:
                raise
            # A job that is stopped while its image is pulled ends without containers.
            journal.write_job(job)
            journal.write_state(stopped_before_start(shared))
            shared.forget_secrets()
            return
        # Written before the first container: after an interruption, `state` or `remove` must find all of them.
        journal.write_job(job)
        try:
            self._start_containers(
                options, limits, images=[(uri, images[uri]) for uri in image_uris], user=user, give_to=give_to
            )
        except PaiError:
            raise
        except APIError as error:
            raise _explained(error, ", ".join(images), self.mounts) from error
        except RequestException as error:
            raise self.engine.lost_error(error, while_doing="it started the job's containers") from error
        except Exception as error:
            raise _explained(error, ", ".join(images), self.mounts) from error
        shared.go()

    def _start_containers(
        self,
        options: LocalOptions,
        limits: Sequence[ContainerLimits],
        *,
        images: Sequence[tuple[str, str]],  # of each role: URI and id
        user: str,
        give_to: str,
    ) -> None:
        network = self._network(options, count=len(self.spec.instances))
        roles = self.spec.request.role_requests
        numbers = [itertools.count() for _ in roles]
        with self._cached_requirements(*images[0], user, give_to) as cached:
            for instance in self.spec.instances:
                arguments = create_arguments(
                    self.sandbox,
                    self.spec.job_id,
                    roles[instance.group],
                    instance,
                    image=images[instance.group][1],
                    mounts=replace(self.mounts, requirements=cached),
                    limits=limits[instance.group],
                    number=next(numbers[instance.group]),
                    user=user,
                    network=network,
                    grace_s=options.grace_s,
                )
                if options.network == "host" and has_roles(self.spec.job_id, self.spec.request):
                    # Without a network of the job, the engine resolves no names of containers.
                    arguments["extra_hosts"] = {each.name: "127.0.0.1" for each in self.spec.instances}
                self.engine.start_container(arguments)

    def _create_metrics_folder(self) -> None:
        """Creates the folder of the metrics that are found in logs, if there are any."""
        # Root's containers would create it unwritable.
        algorithm = self.spec.request.algorithm_spec
        if algorithm and algorithm.metric_definitions:
            Path(RunLayout(str(self.sandbox.ml / "output")).log_metrics).mkdir(parents=True, exist_ok=True)

    def _image_uris(self) -> list[str]:
        """Returns the image of each role."""
        algorithms = [role.algorithm_spec for role in self.spec.request.role_requests]
        uris = [algorithm.image for algorithm in algorithms if algorithm and algorithm.image]
        if len(uris) < len(algorithms):
            raise InvalidInputError([Problem("algorithm_spec.image", "is required: containers are made from one")])
        if len({*uris}) > 1 and self._requirements():
            # They are installed once, by the Python of one image.
            hint = "install them in the images, or use one image for all roles"
            message = "cannot be shared by roles with unlike images"
            raise InvalidInputError([Problem("requirements", message, hint)])
        return uris

    @property
    def sandbox(self) -> Sandbox:
        """Returns the job's folder."""
        return self.spec.sandbox

    @property
    def mounts(self) -> ContainerMounts:
        """Returns the files and folders of this machine that are mounted into the containers."""
        mounts = self.spec.mounts
        return ContainerMounts(
            mounts.inputs,
            mounts.outputs,
            mounts.folders,
            self.pip_cache,
            requested=self.spec.request.mounts or (),
        )

    def _job(self, options: LocalOptions, limits: Sequence[ContainerLimits], give_to: str) -> dict[str, Any]:
        """Returns the job's properties that are needed after the start."""
        return {
            "job_id": self.spec.job_id,
            "instances": [asdict(instance) for instance in self.spec.instances],
            "grace_s": options.grace_s,
            "give_to": give_to,
            "outputs": {name: str(path) for name, path in self.mounts.all_outputs(self.sandbox).items()},
            "memory_bytes": limits[0].memory_bytes,
            "memory_bytes_by_role": [each.memory_bytes for each in limits],
            "kernel_kills": memory.kernel_kills(),
            "launched_at": time.time(),
            "max_running_s": self.spec.limits.max_running_s,
        }

    def _user(self, options: LocalOptions) -> tuple[str, str]:
        """Returns the user of the containers, and the final owner of the files if that is another one."""
        me = f"{os.getuid()}:{os.getgid()}"
        # Root in the container is the caller on the host.
        if self.engine.is_rootless:
            return "0:0", ""
        if options.user == "root":
            return "0:0", "" if os.getuid() == 0 else me
        user = options.user or me
        if os.getuid() and user.partition(":")[0] != str(os.getuid()):
            message = f"only root may start containers as another user, and you are {os.getuid()}"
            raise InvalidInputError([Problem("the local option user", message, "leave it out, or take 'root'")])
        return user, ""

    def _give(self, user: str) -> None:
        """Gives what a job writes to its user; existing content of an output stays as it is."""
        uid, _, gid = user.partition(":")
        folders = [
            self.sandbox.usercode,
            self.sandbox.ml / "output",
            self.sandbox.logs_dir,
            self.sandbox.shared_dir,
            self.sandbox.mounts_dir,
        ]
        folders += [path for path in self.mounts.outputs.values() if not any(path.iterdir())]
        for folder in folders:
            for path in (folder, *folder.rglob("*")) if folder.exists() else ():
                os.chown(path, int(uid), int(gid or 0), follow_symlinks=False)

    def _network(self, options: LocalOptions, *, count: int) -> str | None:
        """Creates the network that the instances of a job share; they find each other by their names in it."""
        if count > 1 and options.network in ("bridge", "default", "none"):
            message = f"instances do not find each other by name in {options.network!r}"
            raise InvalidInputError([Problem("the local option network", message, "leave it out, or take 'host'")])
        if options.network or count == 1:
            return options.network
        name = f"pai-{self.spec.job_id}"
        self.engine.client.networks.create(name, driver="bridge", labels=labels(self.spec.job_id, self.sandbox))
        return name

    def _environments(
        self, options: LocalOptions, limits: Sequence[ContainerLimits], *, give_to: str
    ) -> dict[str, str]:
        """Returns the files of each instance: its variables, and the settings of the script."""
        instances = self.spec.instances
        if options.network == "host":
            meeting = Rendezvous.on_loopback(free_ports(1 + len(instances)))
        elif len(instances) == 1:
            # In no network, so its name does not resolve; its ports are private.
            meeting = Rendezvous.on_loopback([MASTER_PORT, TF_PORT])
        else:
            meeting = Rendezvous.of_hosts([i.name for i in instances])
        if has_roles(self.spec.job_id, self.spec.request):
            meeting = replace(meeting, roles=tuple(instance.role for instance in instances))
        job_type = contract.job_type(self.spec.request)
        files = self._role_files()
        for instance, environment in zip(instances, self.spec.environments, strict=True):
            local = replace(meeting, nproc_per_node=gpu_share(limits[instance.group]))
            shared = rendezvous_variables(instance, local, job_type=job_type)
            variables = {**self._default_environment(), **shared, **environment.at("/ml")}
            settings = {
                "PAI_SDK_RANK": instance.rank,
                "PAI_SDK_LIMIT_S": int(self.spec.limits.max_running_s or 0),
                "PAI_SDK_GRACE_S": options.grace_s,
                "PAI_SDK_PREEMPT_AFTER_S": options.preempt_after_s,
                "PAI_SDK_GIVE_TO": give_to,
                "PAI_SDK_UMASK": _umask(),
            }
            files[f"{instance.name}.settings"] = "".join(f"{name}={value}\n" for name, value in settings.items())
            files[f"{instance.name}.env"] = environment_file(variables)
        return files

    def _role_files(self) -> dict[str, str]:
        """Returns the files about roles and mounts, see `instance.sh`."""
        instances, files = self.spec.instances, dict[str, str]()
        for instance in instances:
            conditions = start_conditions(self.spec.request, instances, instance)
            if conditions:
                lines = [f"{count} {' '.join(names)}\n" for names, count in conditions]
                files[f"{instance.name}.after"] = "".join(lines)
            if not instance.is_awaited:
                files[f"{instance.name}.optional"] = "" if instance.can_fail_job else "harmless\n"
        awaited = [f"{instance.name}\n" for instance in instances if instance.is_awaited]
        written = [f"{mount.path}\n" for mount in self.spec.request.mounts or () if mount.access == "RW"]
        files |= {"mounts": "".join(written)} if written else {}
        return files | ({"awaited": "".join(awaited)} if len(awaited) < len(instances) else {})

    def _default_environment(self) -> dict[str, str]:
        """Returns default variables; the values of the request win."""
        variables = {"PYTHONUNBUFFERED": "1"}
        # A user without an entry in the image's /etc/passwd has no home there.
        if os.getuid():
            variables |= {"HOME": f"{SHARED_DIR}/home", "USER": "pai", "LOGNAME": "pai"}
        if self.mounts.pip_cache:
            variables["PIP_CACHE_DIR"] = f"{SHARED_DIR}/pip-cache"
        return variables

    def _requirements(self) -> list[str]:
        lines = list(self.spec.request.python_requirements or ())
        if self._code_requirements.is_file():
            lines.append("-r /ml/usercode/requirements.txt")
        return lines

    @property
    def _code_requirements(self) -> Path:
        return self.sandbox.usercode / "requirements.txt"

    @contextmanager
    def _cached_requirements(
        self, image_uri: str, image: str, user: str, give_to: str
    ) -> Iterator[CachedRequirements | None]:
        """Yields the folder for the requirements, shared with later jobs; None if there is nothing to cache."""
        contents = ["".join(f"{line}\n" for line in self.spec.request.python_requirements or ())]
        if self._code_requirements.is_file():
            contents.append(self._code_requirements.read_text(encoding="utf-8", errors="backslashreplace"))
        # Files of root's containers get their owner only at the end of a job, too late for other jobs.
        if self.requirements_cache is None or give_to or not any(text.strip() for text in contents):
            yield None
            return
        variables = self.spec.environments[0].at("/ml")
        with self.requirements_cache.use(
            contents, image=image_uri, image_id=image, user=user, variables=variables
        ) as cached:
            if cached and not cached.is_complete and os.getuid() == 0:
                os.chown(cached.folder, *(int(part) for part in f"{user}:0".split(":")[:2]))
            yield cached


def _umask() -> str:
    """Returns the caller's umask, so that users who can read the caller's files can read a job's."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return "022"
    return next((line.split()[1] for line in status.splitlines() if line.startswith("Umask:")), "022")


def _explained(error: Exception, image: str, mounts: ContainerMounts) -> PaiError:
    """Returns the error to raise for a refusal of the engine."""
    reason = str(getattr(error, "explanation", None) or error).strip()
    if "/bin/sh" in reason and ("no such file" in reason or "not found" in reason):
        return ImageError(f"the image {image!r} has no /bin/sh, which every job needs; use one with a shell")
    if "bind source path does not exist" in reason:
        missing = [f"{channel}: {path}" for channel, path in mounts.inputs.items() if not path.exists()]
        return LocalRunError(f"an input is not there any more: {', '.join(missing) or reason}")
    if "could not select device driver" in reason or "nvidia" in reason.lower():
        return LocalRunError(
            f"the engine cannot give GPUs to containers ({reason}); install the NVIDIA container toolkit, or use "
            "instance_type='local'"
        )
    if "address pool" in reason:
        return LocalRunError(
            f"the engine has no addresses left for one more network ({reason}); `pai-sdk prune` and `docker "
            "network prune` remove unused ones"
        )
    return LocalRunError(f"the Docker engine refused the job: {reason}")
