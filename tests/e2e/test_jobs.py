"""Jobs as users run them, from the description to the result."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor, Session, TrainingJob
from pai_sdk._wire.pai.spec import Channel
from pai_sdk.errors import InvalidInputError, JobFailed, JobStopped
from tests.support import ml
from tests.support.waiting import PATIENCE_S
from tests.support.wheels import write_wheel

HOSTILE = {
    "plain": "abc",
    "spaces": " two  words ",
    "quotes": 'it\'s "quoted"',
    "shell": "$(id) `id` $HOME ; rm -rf x && y | z > w",
    "newline": "one\ntwo",
    "unicode": "naïve 训练 🚀",
    "backslash": "a\\b",
    "dashes": "--not-an-option",
    "empty": "",
    "number": 0.1,
    "flag": True,
    "list": [1, "x y"],
}
AS_TEXT = {**HOSTILE, "number": "0.1", "flag": "true", "list": '[1, "x y"]'}

WITHOUT_INDEX = {"PIP_NO_INDEX": "1"}  # so that no test waits for the network


def code(folder: Path, **files: str) -> Path:
    """A code folder with these scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def lines(job: TrainingJob, instance: str | None = None) -> list[str]:
    """What a job wrote itself."""
    return [line.text for line in job.logs(instance=instance) if not line.text.startswith(ml.NOTICE)]


def processor(session: Session, command: str, source_dir: Path | None = None, **rest: Any) -> Processor:
    return Processor(
        "python:3.11", command, source_dir=source_dir, instance_type="ecs.c6.large", session=session, **rest
    )


def test_hyperparameters_come_through_whole_in_every_way(session: Session, tmp_path: Path) -> None:
    source = code(
        tmp_path / "the code's folder",
        show="""
            import json, os, sys
            hps = json.loads(os.environ["PAI_HPS"])
            print(json.dumps({
                "file": json.load(open(os.environ["PAI_CONFIG_DIR"] + "/hyperparameters.json")),
                "hps": hps,
                "each": {name: os.environ["PAI_HPS_" + name.upper()] for name in hps},
                "args": sys.argv[1:],
                "cwd": os.getcwd(),
            }))
        """,
    )
    job = processor(session, 'eval "set -- $PAI_USER_ARGS"; python show.py "$@"', source, parameters=HOSTILE).run(
        show_logs=False
    )
    shown = json.loads(lines(job)[-1])
    assert shown["file"] == shown["hps"] == shown["each"] == AS_TEXT
    assert shown["args"] == [word for name, value in AS_TEXT.items() for word in (f"--{name}", value)]
    assert shown["cwd"].endswith("/ml/usercode")
    assert (shown["cwd"] == "/ml/usercode") is ml.can_be_had()
    first = next(iter(job.logs())).text
    assert first.startswith(ml.NOTICE) is not ml.can_be_had()


def test_inputs_local_and_remote_outputs_and_back(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a file.csv").write_text("one")
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "ü x.txt").write_text("two")
    source = code(
        tmp_path / "src",
        copy="""
            import os, pathlib
            out = pathlib.Path(os.environ["PAI_OUTPUT_RESULT"])
            out.joinpath("file").write_text(open(os.environ["PAI_INPUT_FILE"]).read())
            out.joinpath("folder").write_text(open(os.environ["PAI_INPUT_FOLDER"] + "/sub/ü x.txt").read())
            out.joinpath("deep", "er").mkdir(parents=True)
            out.joinpath("deep", "er", "x y").write_text("three")
        """,
    )
    first = processor(session, "python copy.py", source)
    first.set_output_channels([Channel(name="result")])
    job = first.run({"file": tmp_path / "a file.csv", "folder": folder}, show_logs=False)
    uri = job.outputs["result"]

    second = processor(session, 'cat "$PAI_INPUT_ALL/deep/er/x y"; cat "$PAI_INPUT_ONE"')
    again = second.run({"all": uri, "one": f"{uri}file"}, show_logs=False)
    assert "".join(lines(again)) == "threeone"

    home = job.download("result", tmp_path / "home", progress=False)
    assert (home / "folder").read_text() == "two"
    assert (home / "deep" / "er" / "x y").read_text() == "three"


def test_requirements_are_there_for_the_command(session: Session, tmp_path: Path) -> None:
    source = code(tmp_path / "src", use="import tiny; print('tiny', tiny.__version__)")
    (source / "requirements.txt").write_text("tiny==1.16.0\n")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "tiny", "1.16.0", "__version__ = '1.16.0'")
    environments = {**WITHOUT_INDEX, "PIP_FIND_LINKS": wheels.as_uri()}
    job = processor(session, "python use.py", source, environments=environments).run(show_logs=False)
    assert lines(job)[-1] == "tiny 1.16.0"


def test_a_requirement_that_cannot_be_had_fails_with_the_words_of_pip(session: Session) -> None:
    with pytest.raises(JobFailed, match="no-such-package-at-all") as caught:
        processor(session, "true", requirements=["no-such-package-at-all==9"], environments=WITHOUT_INDEX).run(
            show_logs=False
        )
    assert caught.value.reason_code == "RequirementsFailed"


def test_three_instances_meet_and_share_their_folders(session: Session, tmp_path: Path) -> None:
    source = code(
        tmp_path / "src",
        meet="""
            import os, socket, time
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            if rank == 0:
                server = socket.create_server(address)
                total = 0
                for _ in range(size - 1):
                    total += int(server.accept()[0].recv(16))
                print("sum of ranks", total)
            else:
                for attempt in range(1000):
                    try:
                        socket.create_connection(address).sendall(str(rank).encode())
                        break
                    except ConnectionRefusedError:
                        time.sleep(0.05)
                print("rank", rank, "has met")
        """,
    )
    job = processor(session, "python meet.py", source, instance_count=3).run(show_logs=False)
    assert sorted(i.rsplit("-", 2)[-2] for i in job.record.instance_names) == ["master", "worker", "worker"]
    assert lines(job, "master-0") == ["sum of ranks 3"]
    assert lines(job, "worker-1") == ["rank 2 has met"]


def test_the_instance_that_fails_first_is_the_one_reported(session: Session, tmp_path: Path) -> None:
    source = code(
        tmp_path / "src",
        fail="""
            import os, time
            if os.environ["RANK"] == "1":
                raise ValueError("no such column: 'age'")
            time.sleep(600)
        """,
    )
    with pytest.raises(JobFailed) as caught:
        processor(session, "python fail.py", source, instance_count=3).run(show_logs=False)
    failure = caught.value
    assert failure.instance is not None
    assert failure.instance.endswith("worker-0")
    assert failure.exit_code == 1
    assert "no such column" in failure.traceback
    assert len(str(failure).splitlines()) <= 24


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 7", "exit code 7"),
        ("no-such-program", "not found"),
        ("kill -SEGV $$", "SEGV|139|[Ss]egmentation"),
        ("kill -9 $$", "SIGKILL"),
    ],
)
def test_every_way_to_fail_is_named(session: Session, command: str, words: str) -> None:
    with pytest.raises(JobFailed, match=words):
        processor(session, command).run(show_logs=False)


def test_a_missing_input_ends_the_job_before_it_runs(session: Session) -> None:
    bucket = session.settings.oss_bucket_name
    with pytest.raises(JobFailed, match="nothing/here") as caught:
        processor(session, "true").run({"data": f"oss://{bucket}/nothing/here/"}, show_logs=False)
    assert caught.value.status == "InitializeFailed"


def test_the_time_limit_ends_a_job(session: Session) -> None:
    with pytest.raises(JobFailed, match=r"1 s|1s|second") as caught:
        processor(session, "sleep 600", max_run_time=1).run(show_logs=False)
    assert caught.value.reason_code == "MaxRunningTimeExceeded"


def test_stop(session: Session) -> None:
    job = processor(session, "echo begun; sleep 600").run(wait=False, show_logs=False)
    for _ in job.logs(follow=True):
        job.stop()
    with pytest.raises(JobStopped):
        job.wait(PATIENCE_S, show_logs=False)
    assert job.status == "Terminated"


def test_nothing_is_sent_for_a_wrong_description(session: Session, tmp_path: Path) -> None:
    before = len([*session.list_jobs()])
    with pytest.raises(InvalidInputError):
        processor(session, "python x.py", tmp_path / "none").run({"a": tmp_path / "missing"})
    assert len([*session.list_jobs()]) == before


def test_an_estimator_with_metrics_and_its_three_outputs(session: Session, tmp_path: Path) -> None:
    source = code(
        tmp_path / "src",
        train="""
            import os, pathlib
            for step in range(5):
                print(f"step {step} loss={1 / (step + 1):.3f}")
            for name in ("MODEL", "CHECKPOINTS", "TENSORBOARD"):
                pathlib.Path(os.environ["PAI_OUTPUT_" + name], "x").write_text(name)
        """,
    )
    estimator = Estimator(
        "python:3.11",
        "python train.py",
        source_dir=source,
        instance_type="ecs.c6.large",
        metric_definitions=[{"name": "loss", "regex": r"loss=([0-9.]+)"}],
        labels={"team": "a b"},
        session=session,
    )
    job = estimator.fit(show_logs=False)
    assert [point.value for point in job.metrics("loss")] == [1.0, 0.5, 0.333, 0.25, 0.2]
    for channel, uri in (
        ("model", estimator.model_data()),
        ("checkpoints", estimator.checkpoints_data()),
        ("tensorboard", estimator.tensorboard_data()),
    ):
        assert uri.endswith(f"/{channel}/")
        assert (job.download(channel, tmp_path / channel, progress=False) / "x").read_text() == channel.upper()
    assert [found.id for found in TrainingJob.list(labels={"team": "a b"}, session=session)] == [job.id]
    assert job.labels["team"] == "a b"
    assert TrainingJob.get(job.id, session=session).status == "Succeed"


def test_the_same_code_is_uploaded_once(
    session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = code(tmp_path / "src", a="print('a')", b="print('b')")
    first = processor(session, "python a.py", source).plan().uploads[0]
    processor(session, "python a.py", source).run(show_logs=False)
    second = processor(session, "python b.py", source)
    assert second.plan().uploads[0].uri == first.uri
    assert lines(second.run(show_logs=False)) == ["b"]


def test_jobs_with_the_same_name_keep_their_models_and_metrics(session: Session, tmp_path: Path) -> None:
    source = code(
        tmp_path / "code",
        train="""
            import sys, os, pathlib
            from pai_sdk import report
            loss = sys.argv[1].partition("=")[2] or sys.argv[2]
            report({"loss": float(loss)}, step=1)
            pathlib.Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text(loss)
        """,
    )
    jobs = []
    for loss in (0.5, 0.25, 0.125):
        estimator = Estimator(
            "python:3.11",
            "python train.py $PAI_USER_ARGS",
            source_dir=source,
            hyperparameters={"loss": loss},
            instance_type="ecs.c6.large",
            session=session,
        )
        jobs.append(estimator.fit(job_name="same", show_logs=False))
    assert {job.name for job in jobs} == {"same"}
    assert len({job.outputs["model"] for job in jobs}) == len(jobs)
    saved = [job.download("model", tmp_path / job.id) / "model.txt" for job in jobs]
    assert [float(path.read_text()) for path in saved] == [0.5, 0.25, 0.125]
    assert [[point.value for point in job.metrics("loss")] for job in jobs] == [[0.5], [0.25], [0.125]]
    losses = [session.runs.scalars(job.id, "loss") for job in jobs]
    assert [last.value for series in losses if (last := series.last())] == [0.5, 0.25, 0.125]
