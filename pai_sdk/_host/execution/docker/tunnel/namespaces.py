"""Enters a container as `docker exec` does, for a process without threads that is root on this machine.

    control groups ─ namespaces ─ root folder ─ fork ─ user and capabilities of the first process

The control groups come first: they limit memory, and the devices that a process may open. Without them, root of
a container could read disks of the host through this process. The process ids are those of the container, so that
the kernel ends this process with it. Its capabilities are those of the container, and it cannot be traced: it has
the host's programs open.
"""

from __future__ import annotations

import ctypes
import os
import posixpath
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._host.agent.processes import exit_code

_SPACES = {
    "cgroup": 0x02000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "mnt": 0x00020000,
}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True)
class Identity:
    """User, groups and capabilities of a process."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    effective: int
    bounding: int
    last_capability: int  # of the kernel

    @classmethod
    def of(cls, process: Path) -> Identity:
        """Returns those of a process of this machine, by its folder in `/proc`."""
        lines = (process / "status").read_text().splitlines()
        fields = {name: values.split() for name, _, values in (line.partition(":") for line in lines)}
        return cls(
            int(fields["Uid"][1]),
            int(fields["Gid"][1]),
            tuple(int(group) for group in fields["Groups"]),
            int(fields["CapEff"][0], 16),
            int(fields["CapBnd"][0], 16),
            int(Path("/proc/sys/kernel/cap_last_cap").read_text()),
        )

    def assume(self) -> None:
        """Makes this process one of this user, with no more than these capabilities, for good."""
        for number in range(self.last_capability + 1):
            if not self.bounding >> number & 1 and _prctl(_PR_CAPBSET_DROP, number):
                raise PermissionError("a capability cannot be dropped")
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        _set_capabilities(self.effective)
        if _prctl(_PR_SET_NO_NEW_PRIVS, 1) or _prctl(_PR_SET_DUMPABLE, 0):
            raise PermissionError("the process cannot be protected from the container")


def is_first_process(process: Path, instance: str) -> bool:
    """Returns whether a folder in `/proc` is that of the first process of an instance's container."""
    with suppress(OSError):
        return instance.encode() in (process / "cmdline").read_bytes().split(b"\0")
    return False


@contextmanager
def opened(process: int, instance: str) -> Iterator[Path]:
    """Returns the folder in `/proc` of a container's first process, which stays that of this process.

    Raises:
        OSError: its number is that of another process by now, which may be one of root of this machine.
    """
    descriptor = os.open(f"/proc/{process}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = Path(f"/proc/self/fd/{descriptor}")
        is_outside = Path("/proc/self/ns/pid").samefile(folder / "ns/pid")
        if is_outside or not is_first_process(folder, instance):
            raise PermissionError(f"the process is not that of the container {instance}")
        yield folder
    finally:
        os.close(descriptor)


def enter_network(process: int, instance: str) -> None:
    """Moves this thread, and the threads that it starts, into the network and host name of a container.

    Raises:
        OSError: this process may not enter it.
    """
    with opened(process, instance) as folder:
        # Other namespaces cannot be entered by a single thread.
        for name in ("uts", "net"):
            descriptor = os.open(folder / "ns" / name, os.O_RDONLY)
            try:
                _set_namespace(descriptor, _SPACES[name])
            finally:
                os.close(descriptor)


def enter(process: int, instance: str) -> None:
    """Enters the container whose first process this is; returns in a child, which has its user.

    Raises:
        OSError: this process may not enter it.
    """
    with opened(process, instance) as folder:
        identity = Identity.of(folder)
        if not Path("/proc/self/ns/user").samefile(folder / "ns/user"):
            raise PermissionError("the users of the container are not those of this machine")
        descriptors = {name: os.open(folder / "ns" / name, os.O_RDONLY) for name in _SPACES}
        root = os.open(folder / "root", os.O_RDONLY | os.O_DIRECTORY)
        groups = control_groups(folder)
    process_id = os.getpid()
    for group in groups:
        Path(group, "cgroup.procs").write_text(str(process_id))
    for name, descriptor in descriptors.items():
        if not os.path.samestat(os.fstat(descriptor), Path(f"/proc/self/ns/{name}").stat()):
            _set_namespace(descriptor, _SPACES[name])
        os.close(descriptor)
    os.fchdir(root)
    os.chroot(".")
    os.chdir("/")
    os.close(root)
    child = os.fork()
    if child:
        # With the process ids of the host; it ends with the child, which may have to tidy up after a SIGHUP.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.closerange(0, 1 << 12)
        os._exit(exit_code(os.waitpid(child, 0)[1]))
    identity.assume()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def control_groups(process: Path) -> list[str]:
    """Returns the folders of the control groups of a process, by its folder in `/proc`.

    Raises:
        FileNotFoundError: one of them is not visible on this machine.
    """
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    hierarchies = [fields for fields in mounts if fields[fields.index("-") + 1] in ("cgroup", "cgroup2")]
    folders = []
    for line in (process / "cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        controllers = {*names.split(",")} if names else {"cgroup2"}
        matches = [fields for fields in hierarchies if controllers <= {fields[-3], *fields[-1].split(",")}]
        relative = [(fields[4], posixpath.relpath(path, fields[3])) for fields in matches]
        visible = [posixpath.normpath(f"{point}/{path}") for point, path in relative if not path.startswith("..")]
        if visible:
            folders.append(visible[0])
        # A kernel may have the second version besides the first, without a use of it.
        elif matches or number != "0":
            raise FileNotFoundError(f"the control group {line!r} is not visible here")
    if not folders:
        raise FileNotFoundError("the control groups are not visible here")
    return folders


def _set_namespace(descriptor: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


def _prctl(option: int, value: int) -> int:
    return int(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0))


def _set_capabilities(effective: int) -> None:
    low, high = effective & 0xFFFFFFFF, effective >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable, twice 32 bits.
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, data) != 0:
        code = ctypes.get_errno()
        raise PermissionError(code, f"capset: {os.strerror(code)}")
