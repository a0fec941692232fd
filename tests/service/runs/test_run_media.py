"""Images, histograms and texts of runs over HTTP, as TensorBoard's writers and others have written them."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto import event_pb2, histogram_pb2, summary_pb2
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.util import tensor_util

from pai_sdk._data.run.events.writer import EventWriter, framed
from tests.service.runs.event_files import write_points
from tests.service.services import Client, job_body
from tests.support.waiting import until

_PNG = b"\x89PNG\r\n\x1a\n"


def png(width: int, height: int, level: int) -> bytes:
    """A grey picture."""
    rows = b"".join(b"\0" + bytes([level]) * width for _ in range(height))
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return _PNG + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def write_events(folder: Path, *events: tuple[int, summary_pb2.Summary.Value]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "events.out.tfevents.1700000000.host.2").open("ab") as file:
        for step, value in events:
            event = event_pb2.Event(wall_time=1.7e9 + step, step=step, summary=summary_pb2.Summary(value=[value]))
            file.write(framed(event.SerializeToString()))


def old_image(tag: str, content: bytes) -> summary_pb2.Summary.Value:
    image = summary_pb2.Summary.Image(height=2, width=3, colorspace=1, encoded_image_string=content)
    return summary_pb2.Summary.Value(tag=tag, image=image)


def new_images(tag: str, *contents: bytes) -> summary_pb2.Summary.Value:
    """As TensorFlow 2 writes several images of one step."""
    metadata = image_metadata.create_summary_metadata(display_name=tag, description="")
    tensor = tensor_util.make_tensor_proto([b"3", b"2", *contents])
    return summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)


@pytest.fixture(scope="module")
def job_id(service: Client) -> str:
    job_id = service.create(job_body("exec sleep 1000"))
    service.until(job_id, "Running")
    folder = service.info.data_dir / "jobs" / job_id / "ml" / "output" / "tensorboard"
    write_points(folder, {"loss": [1.0]})
    write_events(
        folder,
        *((step, old_image("samples", png(3, 2, step))) for step in range(3)),
        (0, new_images("grid", png(3, 2, 100), png(3, 2, 101))),
        (1, old_image("hostile", b"<svg onload='alert(1)'></svg>")),
        (
            2,
            summary_pb2.Summary.Value(
                tag="old",
                histo=histogram_pb2.HistogramProto(
                    bucket_limit=[1, 2, math.inf], bucket=[3, 4, 5], min=0, max=9, num=12
                ),
            ),
        ),
    )
    with EventWriter(folder, source="other") as writer:
        writer.text("note", "<b>hello</b>" + "x" * 30_000, 3)
        for step in range(500):
            writer.histogram("weights", [float(n) for n in range(200)], step, buckets=100)

    def is_read() -> bool:
        answer = service.call("GET", f"/runs/{job_id}/media")
        if answer.status_code == 404:
            return False  # the runs were listed before this job was created
        counts = {one["tag"]: one["count"] for one in answer.json()["tags"]}
        return len(counts) == 6 and counts["weights"] == 500

    until(is_read, "all files of the run to be read")
    service.call("PUT", f"/trainingjobs/{job_id}/stop")
    service.until(job_id)
    return job_id


def media(client: Client, job_id: str, **query: Any) -> dict[str, Any]:
    return client.get(f"/runs/{job_id}/media", **query)


def test_tags_are_listed_by_kind(service: Client, job_id: str) -> None:
    found = {(one["kind"], one["tag"]): one["count"] for one in media(service, job_id)["tags"]}
    assert found == {
        ("image", "samples"): 3,
        ("image", "grid"): 1,
        ("image", "hostile"): 1,
        ("histogram", "old"): 1,
        ("histogram", "weights"): 500,
        ("text", "note"): 1,
    }


@pytest.mark.parametrize(
    ("tag", "steps", "levels"), [("samples", [0, 1, 2], [0, 1, 2]), ("grid", [0, 0], [100, 101])]
)
def test_images_of_both_forms_are_read(
    service: Client, job_id: str, tag: str, steps: list[int], levels: list[int]
) -> None:
    items = media(service, job_id, kind="image", tag=tag)["items"]
    assert [item["step"] for item in items] == steps
    for item, level in zip(items, levels, strict=True):
        answer = service.call("GET", f"/runs/{job_id}/media/image", tag=tag, index=item["index"])
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == png(3, 2, level)


@pytest.mark.parametrize(("tag", "index"), [("hostile", 0), ("samples", 7), ("nothing", 0)])
def test_what_is_no_picture_is_not_sent(service: Client, job_id: str, tag: str, index: int) -> None:
    answer = service.call("GET", f"/runs/{job_id}/media/image", tag=tag, index=index)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/json")


def test_histograms_are_thinned_and_have_few_bins(service: Client, job_id: str) -> None:
    items = media(service, job_id, kind="histogram", tag="weights")["items"]
    assert (len(items), items[0]["step"], items[-1]["step"]) == (200, 0, 499)
    bins = items[0]["bins"]
    assert len(bins) <= 64
    assert (bins[0][0], bins[-1][1], sum(count for *_, count in bins)) == (0.0, 199.0, 200.0)
    (old,) = media(service, job_id, kind="histogram", tag="old")["items"]
    assert sum(count for *_, count in old["bins"]) == 12


def test_long_texts_are_cut_visibly(service: Client, job_id: str) -> None:
    (item,) = media(service, job_id, kind="text", tag="note")["items"]
    assert item["text"].startswith("<b>hello</b>x")
    assert item["text"].endswith("… (30,012 characters)")
    assert item["step"] == 3


def test_a_tag_of_another_kind_is_refused(service: Client, job_id: str) -> None:
    assert service.call("GET", f"/runs/{job_id}/media", kind="image", tag="loss").status_code == 404
    assert service.call("GET", "/runs/nothing/media").status_code == 404


def test_the_list_says_which_runs_have_what(service: Client, job_id: str) -> None:
    plain = service.create(job_body())
    until(lambda: plain in {run["id"] for run in service.get("/runs", fields="media")["runs"]}, "the run")
    found = {run["id"]: run.get("media") for run in service.get("/runs", fields="media")["runs"]}
    expected = ["histogram:old", "histogram:weights", "image:grid", "image:hostile", "image:samples", "text:note"]
    assert (found[job_id], found[plain]) == (expected, None)
    assert "media" not in service.get("/runs", fields="name")["runs"][0]
