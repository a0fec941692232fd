"""Tables of a running service: written through a session, read and written by a job that names them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odps import ODPS, errors

from pai_sdk import Processor, Session
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._service.background.scheduler import Scheduler
from pai_sdk.errors import InvalidInputError
from tests.service.services import Client, session_on
from tests.support.messages import refused

READS = """
import json, os, stat
from odps import ODPS
meta = json.load(open(os.path.join(os.environ["PAI_INPUT_CLICKS"], "meta.json")))
path = os.environ["PAI_ODPS_CREDENTIAL"]
assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, os.stat(path)
key = json.load(open(path))
project, _, table, partition = meta["path"].removeprefix("odps://").split("/")
url = meta["endpoint"]
client = ODPS(key["AccessKeyId"], key["AccessKeySecret"], project=project, endpoint=url, tunnel_endpoint=url)
with client.get_table(table).open_reader(partition=partition) as reader:
    print("sum", sum(record["n"] for record in reader))
output = json.load(open(os.path.join(os.environ["PAI_OUTPUT_SUMS"], "meta.json")))["path"]
sums = client.create_table(output.rstrip("/").rpartition("/")[2], "n bigint")
with sums.open_writer() as writer:
    writer.write([[5050]])
print("tables", [each.name for each in client.list_tables()])
for name in ("private", table):
    try:
        client.delete_table(name)
    except Exception as error:
        print(name, "is kept:", *str(error).split())
json.dump(key, open(os.path.join(os.environ["PAI_OUTPUT_MODEL"], "copy.json"), "w"))
"""


@pytest.fixture
def service_slow_to_forget(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A service whose scheduler goes on with a job for a moment after it has reported the end."""
    release = Scheduler._release

    def late(scheduler: Scheduler, active: Any) -> None:
        time.sleep(0.5)
        release(scheduler, active)

    monkeypatch.setattr(Scheduler, "_release", late)
    with start() as client:
        yield client


def test_a_job_uses_its_tables_with_pyodps_and_no_others(service_slow_to_forget: Client, tmp_path: Path) -> None:
    service = service_slow_to_forget
    session = session_on(service.info)
    with TraceWriter({"n": "bigint"}, session.tables.sink("clicks", partition="dt=1"), run_id="r1") as writer:
        writer.write(n=np.arange(101))
    with TraceWriter({"n": "bigint"}, session.tables.sink("private")) as writer:
        writer.write(n=[1])
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "read.py").write_text(READS)
    processor = Processor(
        "python:3.11",
        "python read.py",
        source_dir=str(tmp_path / "code"),
        instance_type="ecs.c6.large",
        session=session,
    )
    inputs = {"clicks": "odps://pai/tables/clicks/dt=1"}
    job = processor.run(inputs=inputs, outputs={"model": None, "sums": "odps://pai/tables/sums"}, wait=False)
    job.wait(show_logs=False)
    lines = [line.text for line in job.logs()]
    assert {"sum 5050", "tables ['clicks', 'sums']"} <= {*lines}, lines
    for table in ("private", "clicks"):
        assert any(line.startswith(f"{table} is kept: ") and "gives no access to table" in line for line in lines)
    with session.tables.client().get_table("sums").open_reader() as reader:
        assert [record["n"] for record in reader] == [5050]
    assert session.tables.client().exist_table("private")
    folder = service.info.data_dir / "jobs" / job.id
    key = json.loads((job.download("model", tmp_path / "out") / "copy.json").read_text())
    assert service.info.access_key_secret not in json.dumps(key)
    texts = [path.read_bytes() for path in (folder / "logs").rglob("*") if path.is_file()]
    texts += [path.read_bytes() for path in folder.rglob("training-job.json")]
    assert not any(key["AccessKeySecret"].encode() in text for text in texts)
    # The key opened the tables while the job ran, and nothing else.
    url = service.info.endpoint
    client = ODPS(key["AccessKeyId"], key["AccessKeySecret"], project="pai", endpoint=url, tunnel_endpoint=url)
    with pytest.raises(errors.ODPSError, match="does not exist"):
        client.exist_table("clicks")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("odps://pai/tables/no_such_table", "Table not found"),
        ("odps://pai/tables/parts/dt=7", "Partition not found"),
    ],
)
def test_a_table_that_is_not_there(service: Client, tmp_path: Path, uri: str, message: str) -> None:
    session = session_on(service.info)
    with TraceWriter({"n": "bigint"}, session.tables.sink("parts", partition="dt=1")) as writer:
        writer.write(n=[1])
    job = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session).run(
        inputs={"t": uri}, wait=False
    )
    found = service.until(job.id)
    assert found["Status"] == "InitializeFailed"
    assert f"input channel 't': {message}" in found["ReasonMessage"]


def test_tables_of_the_cloud_need_a_project() -> None:
    session = Session("cn-hangzhou", "1", oss_bucket_name="models", access_key_id="LTAI-x", access_key_secret="y")
    assert session.tables.endpoint == "https://service.cn-hangzhou.maxcompute.aliyun.com/api"
    with refused(InvalidInputError):
        session.tables.sink("t")
    assert repr(session.tables.sink("t", project="shop")) == "OdpsSink('shop.t')"
