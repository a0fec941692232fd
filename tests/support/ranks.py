"""Ranks of a training without torch: an all-reduce over sockets, in which one rank hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pai_sdk._host.agent.distributed import free_ports
from pai_sdk._host.agent.processes import descendants

PROGRAM = """
import os, signal, socket, struct, subprocess, sys, threading, time

rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
fault, odd, peers = os.environ.get("FAULT", ""), int(os.environ.get("ODD", "2")), []

def receive(peer, count):
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data)) or sys.exit("a rank has exited")
    return data

def connect():
    if rank == 0:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(256)
        for _ in range(size - 1):
            peers.append(listener.accept()[0])
        return
    while not peers:
        try:
            peers.append(socket.create_connection(("127.0.0.1", port)))
        except OSError:
            time.sleep(0.02)

def all_reduce(value):
    if rank == 0:
        for peer in peers:
            value += struct.unpack("d", receive(peer, 8))[0]
        for peer in peers:
            peer.sendall(struct.pack("d", value))
        return value
    peers[0].sendall(struct.pack("d", value))
    return struct.unpack("d", receive(peers[0], 8))[0]

def load_data():
    time.sleep(600)

def take_lock():
    lock = threading.Lock()
    with lock:
        with lock:
            pass

def evaluate():
    while True:
        pass

def run_program():
    subprocess.run(["sleep", "600"])

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

faults = {"loader": load_data, "lock": take_lock, "evaluate": evaluate, "program": run_program, "stop": stop}

def train():
    for step in range(10 ** 9):
        if rank == odd and step == 3:
            faults[fault]()
        all_reduce(1.0)
        if step == 2:
            print("started", flush=True)

connect()
train()
"""


@contextmanager
def ranks(folder: Path, size: int, *, fault: str, python: str = sys.executable) -> Iterator[list[int]]:
    """Start ranks of which number 2 has a fault in step 3; yields their process ids once all are in that step."""
    (folder / "train.py").write_text(PROGRAM)
    shared = {"WORLD_SIZE": str(size), "MASTER_PORT": str(free_ports(1)[0]), "FAULT": fault}
    processes = [
        subprocess.Popen(
            [python, str(folder / "train.py")],
            env={"PATH": os.defpath, "RANK": str(rank), "PAI_INSTANCE_NAME": f"job-worker-{rank}", **shared},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(size)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            for child in descendants(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, 9)
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()
