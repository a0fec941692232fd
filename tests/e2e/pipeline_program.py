"""A program with a pipeline of 20 steps, 14 of them jobs. Other processes kill it, and start it again.

    python -m tests.e2e.pipeline_program FOLDER SERVICE_DIR SALT [--changed STEP]

It goes on with the newest run that has not succeeded, or begins one. Each job and each call adds its name to
FOLDER/SALT.ran.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from pai_sdk import Processor, Session
from pai_sdk._client.pipeline import Pipeline, PipelineRun
from pai_sdk.errors import InUseError, RunNotFoundError

CHAIN = 6
PREPARED = 'echo "$NAME" >>"$RAN"; sleep 0.2; mkdir -p "$PAI_OUTPUT_OUT"; echo "$NAME" >"$PAI_OUTPUT_OUT/name.txt"'


def note(name: str, ran: str, value: object = None) -> str:
    """Called as a step: adds the name to the file, in one write."""
    with Path(ran).open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    return f"{name} after {value}"


def described(folder: Path, session: Session, salt: str, changed: str = "") -> Pipeline:
    """The pipeline: two chains of six jobs behind one, calls beside them, one job and two calls at the end."""
    pipeline = Pipeline("killed", store=folder / "store", session=session, parallel=3)
    ran = str(folder / f"{salt}.ran")

    def job(name: str) -> Processor:
        command = f"{PREPARED}; true changed" if name == changed else PREPARED
        environments = {"NAME": name, "RAN": ran}
        return Processor(
            "python:3.11", command, environments=environments, instance_type="ecs.c6.large", session=session
        )

    first = pipeline.step(job("first"), name="first", outputs=["out"])
    ends = []
    for chain in "ab":
        before = first
        for number in range(CHAIN):
            name = f"{chain}{number}"
            before = pipeline.step(job(name), name=name, outputs=["out"], inputs={"in": before.outputs.out})
            if number % 3 == 2:
                arguments = {"name": f"{name}-call", "ran": ran, "value": before.outputs.out}
                pipeline.step(note, name=f"{name}-call", arguments=arguments)
        ends.append(before)
    last = pipeline.step(
        job("last"),
        name="last",
        outputs=["out"],
        inputs={f"in{number}": end.outputs.out for number, end in enumerate(ends)},
    )
    end = pipeline.step(note, name="end", arguments={"name": "end", "ran": ran, "value": last.outputs.out})
    pipeline.step(note, name="after", arguments={"name": "after", "ran": ran, "value": end.result})
    return pipeline


def run(pipeline: Pipeline, *, new: bool) -> PipelineRun:
    """Go on with the newest run, or begin one."""
    if not new:
        try:
            return pipeline.resume(show=False)
        except RunNotFoundError:
            pass
    return pipeline.run(show=False)


def main() -> int:
    """Run it, and write what happened as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("service", type=Path)
    parser.add_argument("salt")
    parser.add_argument("--changed", default="")
    parser.add_argument("--new", action="store_true")
    given = parser.parse_args()
    pipeline = described(given.folder, Session.embedded(given.service), given.salt, given.changed)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    begun = time.monotonic()
    try:
        done = run(pipeline, new=given.new)
    except InUseError as error:
        sys.stdout.write(json.dumps({"in use": str(error), "holder": dict(error.holder)}) + "\n")
        return 3
    facts = {
        "took_s": time.monotonic() - begun,
        "pid": os.getpid(),
        "run": done.id,
        "steps": {name: [one.status, one.job_id, one.reason] for name, one in done.steps.items()},
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
