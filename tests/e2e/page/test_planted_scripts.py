"""A harmless script in every kind of bytes that users write, opened by an administrator in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.embedded import ensure_running
from tests.e2e.test_page import live, origin_of, served_folder, show
from tests.service.runs.test_run_media import old_image, png, write_events
from tests.service.services import Client, job_body
from tests.support.browser import why_no_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = [
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
    pytest.mark.timeout(300),
]

AWAY = "http://198.51.100.7/"  # of the network for documentation: nothing may be sent there
SCRIPT = (
    f"<script>window.planted=document.title='planted';localStorage.planted=1;new Image().src='{AWAY}'</script>"
)
TAG = "<img src=x onerror=planted=document.title='planted'>"  # a file name, too
TURNED = "report\u202egnp.exe"

# Writes the script into everything that a job writes.
PROGRAM = r"""
import json, os, pathlib
from pai_sdk import report
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk.trace import TraceWriter

tag, script, turned = (os.environ[name] for name in ("TAG", "SCRIPT", "TURNED"))
print(tag, flush=True)
print(script, flush=True)
report({tag: 0.5, "loss": 1.0}, step=1)
out, events = (pathlib.Path(os.environ[f"PAI_OUTPUT_{name}"]) for name in ("MODEL", "TENSORBOARD"))
(out / tag).mkdir()
for file in (out / tag / tag, out / turned, out / "page.html"):
    file.write_text(script)
(out / "table.csv").write_text(f'{tag},"{script}"\n{script},1\n')
(out / "a.json").write_text(json.dumps({tag: script}))
(out / "picture.png").write_text(script)
(out / "a.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{script}</svg>')
with TraceWriter({"planted": "string", "value": "string"}) as writer:
    writer.write(planted=[tag], value=[script])
with EventWriter(events, source="texts") as texts:
    texts.text(tag + "!", script, 1)
    texts.histogram(tag + "s", [1.0, 2.0], 1)
raise ValueError(tag + script)
"""


@dataclass
class Planted:
    """A service with a failed job that has the script in all that it wrote."""

    session: Session
    client: Client
    job_id: str


@dataclass
class Watch:
    """All pages of one browser, and what they asked for."""

    context: BrowserContext
    origin: str
    asked: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What left the browser, and where a script of a user ran on the origin of the service."""
        found = [f"asked {url}" for url in self.asked if not url.startswith((self.origin, "blob:", "data:"))]
        for page in self.context.pages:
            found += [f"ran in {page.url}"] if page.title() == "planted" else []
            if urlsplit(page.url).path == "/ui/":
                ran = page.evaluate("window.planted !== undefined || localStorage.planted !== undefined")
                found += [f"reached {page.url}"] if ran else []
        return found


@pytest.fixture(scope="module")
def planted(service_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    session = Session.embedded(service_dir)
    source = tmp_path_factory.mktemp("source")
    (source / "train.py").write_text(PROGRAM)
    estimator = Estimator(
        "python:3.11",
        "python train.py",
        source,
        hyperparameters={"planted": TAG, "script": SCRIPT},
        environments={"TAG": TAG, "SCRIPT": SCRIPT, "TURNED": TURNED},
        labels={"planted": TAG, TAG: TAG},
        instance_type="ecs.c6.large",
        base_job_name="planted",
        session=session,
    )
    job = estimator.fit(wait=False, show_logs=False)
    client = Client(ensure_running(service_dir))
    assert client.until(job.id)["Status"] == "Failed"
    assert SCRIPT in client.log(job.id)[-1], client.log(job.id)  # all was written before
    client.create(job_body("false", TrainingJobName=TAG, TrainingJobDescription=SCRIPT))
    return Planted(session, client, job.id)


@contextmanager
def admin(browser: Browser, link: str) -> Iterator[tuple[Page, Watch]]:
    """A signed-in page, in a browser in which everything is watched."""
    context = browser.new_context(locale="en-US")
    watch = Watch(context, origin_of(link))
    context.on("request", lambda request: watch.asked.append(request.url))
    page = context.new_page()
    page.goto(link)
    live(page)
    yield page, watch
    context.close()


def test_every_view_shows_it_as_text(browser: Browser, planted: Planted) -> None:
    from playwright.sync_api import expect

    run = f"run={planted.job_id}"
    choices = {kind: f"view=media&q=id={planted.job_id}&media={kind}:" for kind in ("text", "histogram")}
    quoted = TAG.replace("=", "%3D")
    places = {
        "": TAG,  # the job's name, labels and hyperparameters
        "view=curves": TAG,
        "view=hparams": TAG,
        choices["text"] + quoted + "!": SCRIPT,
        choices["histogram"] + quoted + "s": TAG,
        run: TAG,  # the error first
        f"{run}&tab=log": SCRIPT,
        f"{run}&tab=curves": TAG,
        f"{run}&tab=files&path=model": TAG,
        f"{run}&tab=trace": SCRIPT[:40],
        f"{run}&tab=request": SCRIPT,
    }
    with admin(browser, planted.session.new_page_link()) as (page, watch):
        for address, text in places.items():
            show(page, address)
            expect(page.locator("main").first).to_contain_text(text)
            assert page.locator("main script, main img[src=x]").count() == 0, address
            assert watch.problems() == [], address


def test_names_cannot_be_turned_around_and_files_are_downloaded(browser: Browser, planted: Planted) -> None:
    with admin(browser, planted.session.new_page_link()) as (page, watch):
        show(page, f"run={planted.job_id}&tab=files&path=model")
        expected = {r"report\u202egnp.exe": "report_gnp.exe", "page.html": "page.html"}
        for shown, saved in expected.items():
            with page.expect_download() as started:
                page.get_by_role("button", name=shown).click()
            assert started.value.suggested_filename == saved
            assert Path(started.value.path()).read_text() == SCRIPT
        assert "\u202e" not in page.locator("body").inner_text()
        assert watch.problems() == []


def test_previews_of_files_run_nothing(browser: Browser, planted: Planted) -> None:
    from playwright.sync_api import expect

    files = {
        "page.html": SCRIPT,
        TURNED: SCRIPT,
        f"{TAG}&path=model/{TAG}": SCRIPT,
        "table.csv": SCRIPT,
        "a.json": TAG,
        "picture.png": SCRIPT,
    }
    with admin(browser, planted.session.new_page_link()) as (page, watch):
        for name, text in files.items():
            address = f"run={planted.job_id}&tab=files&path=model&file={name.replace('onerror=', 'onerror%3D')}"
            show(page, address.replace("src=x", "src%3Dx"))
            expect(page.locator(".preview")).to_contain_text(text[:50])
            assert page.locator("main script, main img, iframe, object, embed").count() == 0, name
            assert watch.problems() == [], name
        show(page, f"run={planted.job_id}&tab=files&path=model&file=a.svg")
        picture = page.locator("img.preview")
        expect(picture).to_have_attribute("src", re.compile("^data:image/svg"))
        page.wait_for_function("() => document.querySelector('img.preview')?.naturalWidth === 9")
        assert watch.problems() == []
        # Neither is it a document if its address is opened.
        preview = f"{watch.origin}/api/v1/runs/{planted.job_id}/files/preview?path=model/page.html"
        opened = page.context.new_page()
        opened.goto(preview)
        assert opened.title() != "planted"
        assert watch.problems() == []


def test_an_object_is_no_page_of_the_service(browser: Browser, planted: Planted) -> None:
    from playwright.sync_api import Error

    bucket = planted.client.bucket()
    svg = f'<svg xmlns="http://www.w3.org/2000/svg">{SCRIPT}</svg>'
    xhtml = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{SCRIPT}</body></html>'
    objects = {"a.html": SCRIPT, "a.svg": svg, "a.xhtml": xhtml, "a.xml": xhtml}
    urls = []
    for name, content in objects.items():
        bucket.put_object(name, content)
        urls.append(bucket.sign_url("GET", name, 600))
    inline = {"response-content-disposition": "inline", "response-content-type": "text/html"}
    urls.append(bucket.sign_url("GET", "a.html", 600, params=inline))
    plain = bucket.sign_url("GET", "a.html", 600, params={"response-content-type": "text/plain"})

    def as_document(route: Route) -> None:
        """Take the attachment away, as if a browser displayed it: the policy has to hold alone."""
        answer = route.fetch()
        headers = {name: value for name, value in answer.headers.items() if name != "content-disposition"}
        route.fulfill(response=answer, headers=headers)

    with admin(browser, planted.session.new_page_link()) as (page, watch):
        for url in urls:
            opened = page.context.new_page()
            with opened.expect_download() as started, pytest.raises(Error, match="Download is starting"):
                opened.goto(url)
            assert Path(started.value.path()).read_text() in objects.values()
            opened.close()
        for url in urls:
            opened = page.context.new_page()
            opened.route("**/*", as_document)
            opened.goto(url)
            assert opened.title() != "planted", url
            assert watch.problems() == [], url
            opened.close()
        opened = page.context.new_page()
        opened.goto(plain)
        assert opened.locator("body").inner_text() == SCRIPT
        live(page)
        assert watch.problems() == []


def test_no_script_of_the_origin_can_read_the_key_of_the_page(browser: Browser, planted: Planted) -> None:
    readable = """async () => {
      const request = indexedDB.open("pai-ui");
      await new Promise((done) => (request.onsuccess = done));
      const keys = request.result.transaction("keys").objectStore("keys").getAll();
      await new Promise((done) => (keys.onsuccess = done));
      const key = keys.result[0];
      const exported = await crypto.subtle.exportKey("raw", key).then(() => "exported", (error) => error.name);
      const stored = { ...localStorage, ...sessionStorage };
      return { exported, extractable: key.extractable, stored, cookie: document.cookie };
    }"""
    with admin(browser, planted.session.new_page_link()) as (page, _):
        found: dict[str, Any] = page.evaluate(readable)
        assert (found["exported"], found["extractable"], found["cookie"]) == ("InvalidAccessError", False, "")
        assert {*found["stored"]} <= {"pai-ui-signed-in", "pai-ui-profile"}
        assert found["stored"]["pai-ui-signed-in"].isdigit()  # a time
        page.reload()  # the key is still there
        live(page)
        status = page.evaluate("() => fetch('/api/v1/runs', {headers: {'X-PAI-UI': '1'}}).then((it) => it.status)")
        assert status == 401


def test_the_page_of_a_folder_shows_names_as_text(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    quoted = TAG.replace("=", "%3D")
    for name in (TAG, TURNED):
        run = tmp_path / "runs" / name
        (run / "logs").mkdir(parents=True)
        (run / "logs" / "worker-0.log").write_text(f"{SCRIPT}\n")
        with EventWriter(run / "tensorboard") as writer:
            writer.hparams({TAG: SCRIPT})
            writer.text(f"{TAG}!", SCRIPT, 1)
            writer.scalars({TAG: 0.5}, 1)
    write_events(tmp_path / "runs" / "pictures", (1, old_image(TAG, png(3, 2, 128))))
    with served_folder(tmp_path / "runs") as server, admin(browser, server.new_link()) as (page, watch):
        for address, text in (
            ("", r"report\u202egnp.exe"),
            ("view=curves", TAG),
            ("view=hparams", TAG),
            (f"view=media&media=text:{quoted}!", SCRIPT),
            (f"view=media&media=image:{quoted}", TAG),
            (f"run={quoted}", TAG),
            (f"run={quoted}&tab=log", SCRIPT),
        ):
            show(page, address)
            expect(page.locator("main").first).to_contain_text(text)
            assert "\u202e" not in page.locator("body").inner_text()
            assert watch.problems() == [], address
