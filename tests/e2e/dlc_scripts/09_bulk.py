"""Submits chunks, waits until fewer than N of them run, and submits those again that failed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

WORKSPACE = os.environ.get("WORKSPACE_ID", "270969")
DATA = os.environ.get("DATA", "--data_sources=d-mzps5b7joy2axmqpa8,d-d49o5g0h2818sw8j1g")
SIZE = os.environ.get("SIZE", "--worker_cpu=16 --worker_memory=128Gi --worker_gpu=1")
TEMPLATE = """dlc submit pytorchjob --name={name}_chunk{index} \
    --command='bash /mnt/user/render.sh {index} {total}' \
    {data} --resource_id=quotalplclkpgjgv --workspace_id={workspace} \
    --priority=7 --workers=1 --worker_image=registry.example.com/render:2 {size} \
    --job_max_running_time_minutes=240
"""
NAME, MAX_RUNNING = "render", 3


def count(status: str) -> int:
    command = (
        f"dlc get job --workspace_id {WORKSPACE} --status {status} --page_size 200 -n {NAME} | grep -c {NAME}"
    )
    return int(subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE).stdout)


def submit(index: int, total: int) -> None:
    while count("Running,Queuing,Creating,EnvPreparing") >= MAX_RUNNING:
        time.sleep(0.1)
    values = {"name": NAME, "index": index, "total": total, "data": DATA, "workspace": WORKSPACE, "size": SIZE}
    subprocess.run(TEMPLATE.format(**values), shell=True, check=True)


def main(total: int) -> None:
    for index in range(total):
        submit(index, total)
    while count("Running,Queuing,Creating,EnvPreparing"):
        time.sleep(0.1)
    command = ["dlc", "get", "job", "--workspace_id", WORKSPACE, "--display_name_regex", f"{NAME}_chunk.*"]
    command += ["--status", "Failed", "--page_size", "500"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    failed = sorted(line.split()[0] for line in lines if line.startswith(NAME) and line.split()[7] == "Failed")
    print("failed:", *failed)
    for name in failed:
        submit(int(name.rpartition("chunk")[2]), total)


main(int(sys.argv[1]))
