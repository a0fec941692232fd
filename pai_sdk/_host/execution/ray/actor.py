"""The actor of one instance: it owns the instance's CPUs and GPUs, and calls the agent on its node.

Ray pickles the class by value, so a node needs Ray but no pai_sdk: the agent's modules arrive with the first call.
Therefore this module imports the standard library only. Variables and keys of a job are arguments of methods,
which, unlike a `runtime_env`, appear neither in Ray's state API nor in its logs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any


class InstanceActor:
    """An instance on a node. If the actor dies, all processes of its instance are killed."""

    def open(self, package: dict[str, bytes], folder: str, namespace: str, job_id: str, name: str) -> None:
        """Creates the instance, unless it exists. `folder` "" selects one in the folder for temporary files."""
        if hasattr(self, "_instance"):
            return
        base = Path(folder or Path(tempfile.gettempdir()) / f"pai-sdk-{os.geteuid()}")
        installed = self._install(package, base)
        sys.path.insert(0, str(installed))
        # From the folder installed above.
        agent = import_module("pai_sdk._host.agent.remote.instance")
        node = self.node()[:16]
        self._instance = agent.HostedInstance(base, installed, namespace, node, job_id, name)

    def node(self) -> str:
        """Returns the id of the node."""
        # Present on the node; the service may import this module without Ray.
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the `HostedInstance`."""
        return getattr(self._instance, method)(*arguments)

    @staticmethod
    def _install(package: dict[str, bytes], base: Path) -> Path:
        digest = hashlib.sha256(repr(sorted(package.items())).encode()).hexdigest()[:16]
        target = base / "packages" / digest
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.geteuid():
            raise PermissionError(f"{base} does not belong to this user")
        base.chmod(0o700)
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=target.parent))
            for name, content in package.items():
                path = draft / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                draft.rename(target)
            except OSError:
                # Another actor on this node renamed its copy first; both have the same digest.
                shutil.rmtree(draft)
        return target
