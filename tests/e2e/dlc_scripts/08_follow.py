"""Submits a task, finds the id in the output, polls the status, reads the log by windows, stops in `finally`."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import time

POLL_S = 0.2
WORKSPACE = os.environ.get("WORKSPACE_ID", "5366")
DATA = os.environ.get("DATA", "--data_sources=d-t6eho1vza1mhowio6z")
SIZE = os.environ.get("SIZE", "--worker_cpu 12 --worker_gpu 1 --worker_memory 192Gi")
FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def main() -> int:
    command = (
        "dlc submit pytorchjob --command 'python3 /mnt/user/run.py --task 7' --name eval_task_7 "
        f"--workspace_id {WORKSPACE} {DATA} "
        f"--resource_id quota12hhgcm8cia --priority 4 --workers 1 {SIZE} "
        "--worker_image registry.example.com/opencompass:1"
    )
    output = subprocess.getoutput(command)
    match = re.search(r"\|\s+(dlc[0-9a-z]+)\s+\|", output)
    if not match:
        print("no job in", output)
        return 1
    job = match.group(1)
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
    try:
        while True:
            info = json.loads(subprocess.getoutput(f"dlc get job {job}"))
            status = info["Status"].upper()
            if status in ("SUCCEEDED", "FAILED", "STOPPED"):
                break
            time.sleep(POLL_S)
        pods = [pod["PodId"] for pod in info["Pods"] if pod["Type"].lower() in ("master", "worker")]
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
        window = f"--start_time {begin.strftime(FORMAT)} --end_time {end.strftime(FORMAT)}"
        print(subprocess.getoutput(f"dlc logs {job} {pods[0]} {window}"))
        return 0 if status == "SUCCEEDED" else 1
    finally:
        subprocess.run(["dlc", "stop", "job", job, "--force"], check=False, stdout=sys.stderr)


sys.exit(main())
