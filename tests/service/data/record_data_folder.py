"""Records a data folder, for tests/service/test_earlier_release.py: `python record_data_folder.py OUT.tar.gz`.

Run it with the checkout of that release as PYTHONPATH and few variables (`env -i`), where FOLDER can be written:
the paths of the folder and of the interpreter are in what is recorded; the latter is replaced.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from odps import ODPS

from pai_sdk import Estimator, Experiment, Processor, Session
from pai_sdk._service.embedded import ensure_running
from pai_sdk.errors import JobFailed

FOLDER = Path("/srv/pai-recorded")
TRAIN = """
import os
from pathlib import Path
from pai_sdk import report
for step in range(3):
    print(f"step {step}", flush=True)
    report({"loss": 1 / (step + 1)}, step=step)
Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text("what was learned")
"""


def main(target: str) -> None:
    service = ensure_running(FOLDER)
    place = {
        "oss_bucket_name": service.bucket,
        "oss_endpoint": service.oss_endpoint,
        "endpoint": service.endpoint,
        "aiworkspace_endpoint": service.endpoint,
        "access_key_id": service.access_key_id,
        "access_key_secret": service.access_key_secret,
    }
    try:
        with Session(service.region_id, service.workspace_id, **place) as session:
            record(session)
        tables = ODPS(
            service.access_key_id,
            service.access_key_secret,
            project="local",
            endpoint=service.endpoint,
            tunnel_endpoint=service.endpoint,
        )
        table = tables.create_table("recorded", "id bigint, text string")
        with table.open_writer() as writer:
            writer.write([[1, "one"], [2, "two"]])
    finally:
        os.kill(service.pid, signal.SIGTERM)
        subprocess.run(["tail", f"--pid={service.pid}", "-f", "/dev/null"], check=True, timeout=60)
    shutil.rmtree(FOLDER / "cache", ignore_errors=True)
    (FOLDER / "reserve").unlink(missing_ok=True)  # empty space
    for job in FOLDER.glob("jobs/*/state/job.json"):
        job.write_text(job.read_text().replace(sys.prefix, "/opt/pai"))
    with tarfile.open(target, "w:gz") as archive:
        archive.add(FOLDER, arcname="data", filter=lambda member: None if member.isfifo() else member)


def record(session: Session) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "train.py").write_text(TRAIN)
        bucket = f"oss://{session.settings.oss_bucket_name}"
        common = {"image_uri": "python:3.11", "instance_type": "ecs.c6.large", "session": session}
        Experiment.create("recorded", artifact_uri=f"{bucket}/recorded/", session=session)
        estimator = Estimator(
            command="python train.py",
            source_dir=name,
            hyperparameters={"lr": 0.1},
            **common,
        )
        estimator.fit(job_name="recorded-1", outputs={"model": f"{bucket}/kept/"}, show_logs=False)
        model = session.models.create("recorded", task="regression")
        session.models.create_version(model, f"{bucket}/kept/")
    failing = Processor(command="echo before; exit 3", **common).run(wait=False)
    try:
        failing.wait(show_logs=False)
    except JobFailed as error:
        print(error)


if __name__ == "__main__":
    main(sys.argv[1])
