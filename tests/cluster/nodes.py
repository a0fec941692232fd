"""Several machines on one: nodes with processes, network, host name and temporary folders of their own (as root).

A node is a set of Linux namespaces. Its network card is plugged into a switch, and so is this machine, which has
the first address of the network. Every node knows the names of the others, and this machine as "outside":

    with Nodes(3) as nodes:
        nodes[0].run("ping", "-c1", nodes[1].address)
        nodes.cut(nodes[1])

A node ends with the process that made it, also where that is killed: its first process reads a pipe from it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.packages import install_packages

__all__ = ["Node", "Nodes", "why_not"]

_ROOT = Path(__file__).parents[2]
# Every node sees the Python of the tests and the sources, also below a folder that is its own.
_PROGRAMS = tuple(dict.fromkeys(Path(path) for path in (sys.base_prefix, sys.prefix, _ROOT)))
_OWN_FOLDERS = ("/tmp", "/var/tmp", "/run", "/home", "/dev/shm")


def why_not() -> str | None:
    """Why there can be no nodes on this machine, in one line; None where there can."""
    if sys.platform != "linux":
        return "nodes of a cluster need the namespaces of Linux"
    if os.geteuid() != 0:
        return "nodes of a cluster are made by root only"
    if subprocess.run(["unshare", "-n", "-m", "-p", "-f", "true"], check=False, capture_output=True).returncode:
        return "nodes of a cluster need namespaces, which are refused here"
    if shutil.which("apt-get") is None:
        return "there is no apt-get to install Debian's packages with"
    return None


# Orphans do not stay as zombies. It ends when the other end of the pipe is closed.
_FIRST_PROCESS = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("made", flush=True)
sys.stdin.read()
"""


class _Namespaces:
    """Namespaces that last until their first process ends, which is when this process ends, at the latest."""

    def __init__(self, *kinds: str, script: str) -> None:
        """Make them, and run a script of the shell within.

        Raises:
            RuntimeError: the script failed.
        """
        script = f"set -e; {script}\nexec {shlex.quote(sys.executable)} -ISc {shlex.quote(_FIRST_PROCESS)}"
        self._unshare = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", *kinds, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._unshare.stdout
        assert self._unshare.stderr
        if self._unshare.stdout.readline() != "made\n":
            raise RuntimeError(f"no namespaces: {self._unshare.stderr.read()}")
        (first,) = psutil.Process(self._unshare.pid).children()
        self.pid: int = first.pid

    def end(self) -> None:
        """Kill everything within, as a power cut does."""
        os.kill(self.pid, signal.SIGKILL)
        self._unshare.communicate()  # it ends when the first process has

    def enter(self, *kinds: str) -> list[str]:
        """The start of a command that is run within."""
        return ["nsenter", "-t", str(self.pid), *kinds]


class Node:
    """One machine. Made and ended by `Nodes`.

    Attributes:
        name: its host name.
        address: its IP address.
    """

    def __init__(self, name: str, address: str, hosts: Mapping[str, str], shared: Sequence[Path]) -> None:
        self.name = name
        self.address = address
        self._hosts = hosts
        self._shared = shared
        self._namespaces: _Namespaces | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it."""
        assert self._namespaces, f"{self.name} is off"
        return self._namespaces.pid

    @property
    def is_off(self) -> bool:
        """Whether it is without power."""
        return self._namespaces is None

    def boot(self) -> None:
        """Start it, with empty temporary folders and no network."""
        self._namespaces = _Namespaces("--net", "--uts", "--ipc", script=self._setup())

    def power_off(self) -> None:
        """Kill it with all that runs on it."""
        if self._namespaces:
            self._namespaces.end()
            for process in self._started:
                process.wait()
        self._namespaces = None
        self._started.clear()

    def command(self, *command: str) -> list[str]:
        """A command, as it is started from outside."""
        assert self._namespaces, f"{self.name} is off"
        return [*self._namespaces.enter("-m", "-n", "-p", "-u", "-i", "--wdns=/home"), *command]

    def run(self, *command: str, **options: Any) -> str:
        """Run a command on it; returns what it printed.

        Raises:
            AssertionError: it failed; the message has its output.
        """
        done = subprocess.run(
            self.command(*command),
            **{
                "env": self.environment(),
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.STDOUT,
                "text": True,
                "timeout": 300,
                **options,
            },
        )
        assert done.returncode == 0, f"{shlex.join(command)} on {self.name}: {done.returncode}\n{done.stdout}"
        return str(done.stdout)

    def start(self, *command: str, log: Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on; what it prints is added to a file of this machine."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command(*command),
                env={**self.environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def environment(self) -> dict[str, str]:
        """The variables of its processes: no secrets of this machine, and nothing that names its folders."""
        path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "HOME": "/home", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def processes(self, name: str = "") -> Iterator[psutil.Process]:
        """What runs on it, without its first process; only programs of this name, if one is given."""
        space = Path(f"/proc/{self.pid}/ns/pid").readlink()
        for process in psutil.process_iter():
            with suppress(OSError, psutil.NoSuchProcess):
                is_here = Path(f"/proc/{process.pid}/ns/pid").readlink() == space and process.pid != self.pid
                if is_here and name in ("", process.name()):
                    yield process

    def kill_processes(self, name: str = "") -> int:
        """Kill what runs on it, or the programs of this name; returns their number."""
        found = [*self.processes(name)]
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=20)
        return len(found)

    def _setup(self) -> str:
        visible = [*self._shared, *_PROGRAMS]
        lines = [f"hostname {self.name}", "ip link set lo up"]
        # A folder that is hidden below can still be mounted through a descriptor of it.
        for number, folder in enumerate(map(shlex.quote, map(str, visible)), 3):
            lines += [f"mount --bind {folder} {folder}", f"exec {number}<{folder}"]
        lines += ["mount -o remount,ro,bind /"]
        lines += [f"mount -t tmpfs -o mode=1777 tmpfs {folder}" for folder in _OWN_FOLDERS]
        for number, folder in enumerate(map(shlex.quote, map(str, visible)), 3):
            lines += [f"mkdir -p {folder}", f"mount --no-canonicalize --bind /proc/self/fd/{number} {folder}"]
            if number >= 3 + len(self._shared):
                lines += [f"mount -o remount,ro,bind {folder}"]
            lines += [f"exec {number}<&-"]
        hosts = "".join(f"{address} {name}\n" for name, address in self._hosts.items())
        lines += [f"printf %s {shlex.quote(hosts)} >/run/hosts", "mount --bind /run/hosts /etc/hosts"]
        return "\n".join(lines)


class Nodes(Sequence[Node]):
    """Some nodes and the switch between them.

    Attributes:
        address: this machine's address in their network.
    """

    def __init__(self, count: int, *, shared: Sequence[Path] = ()) -> None:
        """Describe them; they start when the context is entered.

        Args:
            count: how many.
            shared: folders of this machine that they all read and write, at the same path.
        """
        self._count = count
        self._shared = shared
        self._nodes: list[Node] = []
        self.address = ""

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: Any) -> Any:
        return self._nodes[index]

    def __enter__(self) -> Nodes:
        install_packages("iproute2", programs=["ip"])
        self._switch = _Namespaces("--net", script="ip link add switch type bridge; ip link set switch up")
        try:
            network = self._plug_in_this_machine()
            self.address = str(network[1])
            hosts = {"localhost": "127.0.0.1", "outside": self.address}
            hosts.update((f"node{index}", str(network[10 + index])) for index in range(self._count))
            names = [*hosts][2:]
            self._nodes = [Node(name, hosts[name], hosts, self._shared) for name in names]
            for node in self._nodes:
                self.power_on(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.power_off()
        self._switch.end()

    def power_on(self, node: Node) -> None:
        """Start a node that is off."""
        node.boot()
        self._in_switch(f"ip link add {node.name} type veth peer name eth0 netns {node.pid}")
        node.run("sh", "-ec", f"ip address add {node.address}/24 dev eth0; ip link set eth0 up")
        self._in_switch(f"ip link set {node.name} master switch up")

    def cut(self, node: Node) -> None:
        """Pull its network cable."""
        self._in_switch(f"ip link set {node.name} down")

    def heal(self, node: Node) -> None:
        """Plug its network cable in again."""
        self._in_switch(f"ip link set {node.name} up")

    def _plug_in_this_machine(self) -> ipaddress.IPv4Network:
        """Connect this machine with the switch, by a network that no one uses here."""
        with _one_at_a_time():
            addresses = subprocess.run(["ip", "-4", "address"], check=True, capture_output=True, text=True).stdout
            routes = subprocess.run(["ip", "-4", "route"], check=True, capture_output=True, text=True).stdout
            numbers = (number for number in range(256) if f" 10.213.{number}." not in f" {addresses} {routes}")
            number = next(numbers)
            network = ipaddress.IPv4Network(f"10.213.{number}.0/24")
            link = f"pai-nodes{number}"
            _run(f"ip link add {link} type veth peer name uplink netns {self._switch.pid}")
            _run(f"ip address add {network[1]}/24 dev {link}; ip link set {link} up")
            self._in_switch("ip link set uplink master switch up")
            return network

    def _in_switch(self, command: str) -> None:
        _run(command, *self._switch.enter("-n"))


def _run(script: str, *before: str) -> None:
    done = subprocess.run([*before, "sh", "-ec", script], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr}")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Other runs of the tests wait, so that two do not take the same network."""
    with Path("/run/lock/pai-sdk-test-nodes").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
