"""What a job does to the folders it shares with us: it cannot lead who looks at it to other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk.errors import JobFailed, JobStopped
from tests.docker.conftest import lines_of
from tests.support.waiting import PATIENCE_S


def test_a_log_cannot_be_replaced_or_have_anything_put_beside_it(submit, backend, tmp_path):
    """A link would show a file of this machine as the log, or have what is noted of the log written there."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    job = submit(
        "log=/run/pai-sdk/logs/$(hostname); rm -f $log.log; mv $log.log $log.old;"
        f"for end in log cuts times; do ln -sf {secret} $log.$end; mkfifo $log.$end; done 2>/dev/null;"
        r"i=0; while [ ! -e /ml/usercode/go ]; do printf '%d%%\r' $i; sleep 0.1; i=$((i+1)); done; echo end"
    )
    lines = iter(job.logs(follow=True))
    next(line for line in lines if "%" in line.text)
    (Sandbox(backend.data_dir / "jobs" / job.id).usercode / "go").touch()
    assert [line.text for line in lines][-1].endswith("end")
    assert "s3cret" not in "".join(lines_of(job))
    assert secret.read_text() == "s3cret\n"
    logs = Sandbox(backend.data_dir / "jobs" / job.id).logs_dir
    assert sorted(path.suffix for path in logs.iterdir()) == [".cuts", ".log"]


@pytest.mark.parametrize("name", ["failed", "stop", "go", "$(hostname).exit", "$(hostname).times"])
def test_rubbish_in_the_shared_folder_harms_only_the_job(submit, name):
    job = submit(f"cd /run/pai-sdk && echo '[1] 2 3' >{name}; exit 3")
    with pytest.raises((JobFailed, JobStopped) if name == "stop" else JobFailed):
        job.wait(timeout=PATIENCE_S, show_logs=False)
    assert list(job.metrics()) == []
    job.delete()


def test_links_in_outputs_lead_where_the_job_meant_them_to(submit, tmp_path):
    out = tmp_path / "out"
    job = submit(
        "cd /ml/output/model; mkdir 'step 3'; echo w >'step 3/w'; ln -s '/ml/output/model/step 3' latest",
        OutputChannels=[{"Name": "model", "OutputUri": f"{out.as_uri()}/"}],
    )
    job.wait(timeout=PATIENCE_S, show_logs=False)
    assert (out / "latest" / "w").read_text() == "w\n"
    copied = job.download("model", tmp_path / "copy")
    assert Path(copied, "latest", "w").read_text() == "w\n"
