"""What keeps browsers from running the bytes of users: on every response, and on objects of presigned URLs."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import oss2
import pytest
import requests

from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S

HTML = b"<script>document.title = 'ran'</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("content") / "data", ScriptedExecutor()) as found:
        yield found


def opened(client: Client, key: str, method: str = "GET", **overrides: str) -> requests.Response:
    """An object as a browser asks for it that opens a presigned URL."""
    params = {f"response-content-{name}": value for name, value in overrides.items()}
    url = client.bucket().sign_url(method, key, 600, params=params, slash_safe=True)
    return requests.request(method, url, timeout=PATIENCE_S)


def is_inert(answer: requests.Response) -> bool:
    directives = [one.strip() for one in answer.headers["Content-Security-Policy"].split(";")]
    return (
        "sandbox" in directives
        and "default-src 'none'" in directives
        and answer.headers["X-Content-Type-Options"] == "nosniff"
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("content_type", "is_displayed"),
    [
        ("text/html", False),
        ("TEXT/HTML; charset=utf-8", False),
        ("application/xhtml+xml", False),
        ("image/svg+xml", False),
        ("text/xml", False),
        ("application/xml", False),
        ("application/pdf", False),
        ("multipart/x-mixed-replace; boundary=b", False),
        ("text/plain, text/html", False),
        ("text/plain; charset=utf-8, text/html", False),
        ("text/javascript", False),
        ("nonsense", False),
        ("", False),
        ("text/plain; charset=utf-8", True),
        ("image/png", True),
        ("video/mp4", True),
        ("application/json", True),
    ],
)
def test_an_object_that_a_browser_could_run_is_downloaded(
    client: Client, method: str, content_type: str, is_displayed: bool
) -> None:
    key = "report.html" if not content_type else "report"
    client.bucket().put_object(key, HTML, headers={"Content-Type": content_type} if content_type else None)
    by_type_of_object = opened(client, key, method)
    by_type_of_url = opened(client, "report" if content_type else key, method, type=content_type)
    for answer in (by_type_of_object, by_type_of_url):
        assert answer.status_code == 200
        assert is_inert(answer)
        assert answer.headers.get("Content-Disposition") == (None if is_displayed else "attachment")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("inline", "attachment"),
        ('inline; filename="a.html"', 'attachment; filename="a.html"'),
        ('INLINE ;filename="a;b.html"', 'attachment;filename="a;b.html"'),
        ('filename="a.html"', "attachment"),
        ('"attachment"; filename=a', "attachment; filename=a"),
        ('attachment; filename="a.html"', 'attachment; filename="a.html"'),
        ("Attachment", "Attachment"),
    ],
)
def test_the_disposition_of_the_user_does_not_open_it(client: Client, given: str, expected: str) -> None:
    client.bucket().put_object("stored.html", HTML, headers={"Content-Disposition": given})
    client.bucket().put_object("plain.html", HTML)
    for answer in (opened(client, "stored.html"), opened(client, "plain.html", disposition=given)):
        assert answer.headers["Content-Disposition"] == expected
        assert is_inert(answer)


def test_a_part_and_an_object_that_is_known_have_the_headers_too(client: Client) -> None:
    client.bucket().put_object("large.html", HTML * 50_000)
    url = client.bucket().sign_url("GET", "large.html", 600, slash_safe=True)
    part = requests.get(url, headers={"Range": "bytes=0-9"}, timeout=PATIENCE_S)
    etag = part.headers["ETag"]
    known = requests.get(url, headers={"If-None-Match": etag}, timeout=PATIENCE_S)
    assert (part.status_code, known.status_code) == (206, 304)
    for answer in (part, known, requests.get(url, timeout=PATIENCE_S)):
        assert is_inert(answer)
        assert answer.headers["Content-Disposition"] == "attachment"


def test_a_client_with_a_key_gets_the_headers_as_they_were_stored(client: Client) -> None:
    bucket = client.bucket()
    bucket.put_object("page.html", HTML)
    bucket.put_object("named.html", HTML, headers={"Content-Disposition": 'inline; filename="n.html"'})
    for read in (bucket.head_object, bucket.get_object):
        assert "Content-Disposition" not in read("page.html").headers
        assert read("named.html").headers["Content-Disposition"] == 'inline; filename="n.html"'
        assert read("page.html").content_type == "text/html"
    assert bucket.get_object("page.html").read() == HTML


def test_every_other_response_is_inert_too(client: Client) -> None:
    job_id = client.create(job_body())
    bucket, port = client.bucket(), urlsplit(client.info.endpoint).port
    unsigned = requests.get(f"{client.info.endpoint}/{client.info.bucket}/x.html", timeout=PATIENCE_S)
    answers = [
        unsigned,  # an error of the store, as XML
        requests.get(bucket.sign_url("GET", "<script>missing", 600), timeout=PATIENCE_S),
        requests.get(f"{client.info.endpoint}/healthz", timeout=PATIENCE_S),
        requests.get(f"{client.info.endpoint}/openapi.json", timeout=PATIENCE_S),
        requests.get(f"{client.info.endpoint}/metrics", timeout=PATIENCE_S),
        requests.get(f"{client.info.endpoint}/api/v1/<script>", timeout=PATIENCE_S),
        requests.get(f"{client.info.endpoint}/tables", headers={"Authorization": "ODPS a:b"}, timeout=PATIENCE_S),
        requests.get(f"http://127.0.0.1:{port}/ui/nothing", timeout=PATIENCE_S),
        requests.get(f"http://127.0.0.1:{port}/ui/download/nothing", timeout=PATIENCE_S),
        *(
            client.call("GET", path)
            for path in (
                f"/trainingjobs/{job_id}",
                f"/trainingjobs/{job_id}/logs",
                f"/runs/{job_id}/log/file",
                f"/runs/{job_id}/trace",
                f"/runs/{job_id}/media",
                "/models",
                "/nothing",
            )
        ),
    ]
    assert [one.url for one in answers if not is_inert(one)] == []


def test_the_page_runs_scripts_of_its_own_folder_only(client: Client) -> None:
    answer = requests.get(f"{client.info.endpoint}/ui/", timeout=PATIENCE_S)
    policy = dict(one.strip().partition(" ")[::2] for one in answer.headers["Content-Security-Policy"].split(";"))
    host = urlsplit(client.info.endpoint).netloc
    assert policy["script-src"] == policy["style-src"] == f"{host}/ui/assets/"
    assert "sandbox" not in policy
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"


def test_official_clients_copy_and_download_by_presigned_urls(client: Client) -> None:
    bucket: oss2.Bucket = client.bucket()
    bucket.put_object("source.html", HTML, headers={"Content-Disposition": "inline"})
    bucket.copy_object(bucket.bucket_name, "source.html", "copy.html")
    assert bucket.head_object("copy.html").headers["Content-Disposition"] == "inline"
    url = bucket.sign_url("GET", "copy.html", 600)
    assert bucket.get_object_with_url(url).read() == HTML
