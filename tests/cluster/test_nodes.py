"""The nodes that the tests of clusters use are as apart as machines are, and nothing of them stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.nodes import Node, Nodes, why_not
from tests.support.leftovers import has_ended
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    shared = tmp_path / "shared by all"
    shared.mkdir()
    with Nodes(3, shared=[shared]) as nodes:
        yield nodes


def reaches(node: Node, address: str) -> bool:
    """Whether a machine refuses a connection to a port that nothing uses; one that is not there is silent."""
    command = node.command("timeout", "1", "bash", "-c", f"</dev/tcp/{address}/9")
    return b"refused" in subprocess.run(command, check=False, capture_output=True).stderr


def test_nodes_reach_each_other_and_this_machine(nodes: Nodes) -> None:
    assert [node.run("hostname").strip() for node in nodes] == ["node0", "node1", "node2"]
    assert all(reaches(nodes[0], address) for address in (nodes[2].address, nodes.address, "node1", "outside"))


def test_a_node_with_its_cable_pulled_is_not_reached_until_it_is_back(nodes: Nodes) -> None:
    nodes.cut(nodes[1])
    assert not reaches(nodes[0], nodes[1].address)
    assert reaches(nodes[0], nodes[2].address)
    nodes.heal(nodes[1])
    until(lambda: reaches(nodes[0], nodes[1].address), "the network")


def test_files_are_a_nodes_own_except_in_shared_folders(nodes: Nodes, tmp_path: Path) -> None:
    nodes[0].run("sh", "-ec", f"touch /tmp/mine '{tmp_path}/shared by all/ours'")
    assert "mine" not in nodes[1].run("ls", "/tmp")
    assert nodes[1].run("ls", f"{tmp_path}/shared by all") == "ours\n"
    assert not Path("/tmp/mine").exists()
    with pytest.raises(AssertionError, match="Read-only"):
        nodes[0].run("touch", "/etc/mine")


def test_every_node_has_the_python_of_the_tests(nodes: Nodes) -> None:
    assert nodes[2].run(sys.executable, "-c", "import psutil, pai_sdk; print('imported')") == "imported\n"


def test_a_node_without_power_has_no_processes_and_starts_again_empty(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes[1]
    node.run("touch", "/tmp/mine")
    process = node.start("sleep", "1000", log=tmp_path / "log")
    until(lambda: [*node.processes("sleep")])
    node.power_off()
    assert process.wait(10) != 0
    nodes.power_on(node)
    assert "mine" not in node.run("ls", "/tmp")
    assert not [*node.processes("sleep")]
    until(lambda: reaches(nodes[0], node.address), "the network")


def test_only_programs_of_the_given_name_are_killed(nodes: Nodes, tmp_path: Path) -> None:
    for node in nodes[:2]:
        node.start("sleep", "1000", log=tmp_path / "log")
        until(lambda node=node: [*node.processes("sleep")])
    assert nodes[0].kill_processes("no-such-program") == 0
    assert nodes[0].kill_processes("sleep") == 1
    assert [*nodes[1].processes("sleep")]


def test_nodes_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from tests.cluster.nodes import Nodes
with Nodes(2) as nodes:
    process = nodes[0].start("sleep", "1000", log=Path(sys.argv[1]))
    print(nodes[0].pid, nodes[1].pid, nodes.address, flush=True)
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "log")], stdout=subprocess.PIPE) as maker:
        assert maker.stdout
        *pids, address = maker.stdout.readline().decode().split()
        inside = psutil.Process(int(pids[0]))
        assert inside.is_running()
        assert address in addresses()
        maker.send_signal(signal.SIGKILL)
    until(lambda: all(has_ended(int(pid)) for pid in pids), "the end of the nodes")
    until(lambda: address not in addresses(), "the end of the network")


def test_two_runs_have_networks_of_their_own(nodes: Nodes) -> None:
    with Nodes(1) as others:
        assert others.address != nodes.address
        assert others[0].address not in [node.address for node in nodes]
        assert reaches(others[0], others.address)
    assert reaches(nodes[0], nodes.address)


def addresses() -> str:
    return subprocess.run(["ip", "-4", "address"], check=True, capture_output=True, text=True).stdout
