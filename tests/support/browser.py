"""Chromium for tests: one that is installed, or Debian's, which root may install; and pages that are watched."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.packages import install_packages
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request

__all__ = ["AXE", "WatchedPage", "chromium", "open_browser", "open_page", "why_no_browser"]

AXE = Path(__file__).parents[2] / "pai_sdk/_service/web/src/node_modules/axe-core/axe.min.js"
"""The checker of accessibility; `make page` installs it."""

_DRIVER_S = 2 * PATIENCE_S
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_TELL_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""


def why_no_browser() -> str | None:
    """Why no browser can be had on this machine, in one line; None where one can."""
    if _installed() is not None:
        return None
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        return "there is no Chromium, and no apt-get to install Debian's with"
    if os.geteuid() != 0:
        return "there is no Chromium, and only root can install it: apt-get install chromium"
    return None


def chromium() -> Path:
    """The program; installed first if it is missing.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    found = _installed()
    if found is None:
        install_packages(
            "chromium", programs=("chromium",)
        )  # of two test processes, the second finds it installed
        found = _installed()
        assert found is not None, "chromium is installed, and not on PATH"
    return found


def _installed() -> Path | None:
    return next((Path(path) for path in map(shutil.which, _PROGRAMS) if path is not None), None)


@dataclass
class WatchedPage:
    """A page of ours in a browser, and what it must not do.

    Attributes:
        page: the page.
        faults: errors on its console, exceptions, violations of its content security policy, and requests to
            another origin, as text.
    """

    page: Page
    faults: list[str] = field(default_factory=list)

    def accessibility_faults(self) -> list[str]:
        """What axe finds on the page as it is; the context must have been opened with `is_checked`."""
        self.page.add_script_tag(path=AXE)
        found: dict[str, Any] = self.page.evaluate("axe.run()")
        return [
            f"{one['id']}: {one['help']}: {node['target']}" for one in found["violations"] for node in one["nodes"]
        ]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser without a window."""
    arguments = ["--disable-gpu", "--enable-precise-memory-info", "--disable-background-networking"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    with _driver() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


@contextmanager
def _driver() -> Iterator[Playwright]:
    """Playwright. Its process was once silent from its start: then it is killed, and started once more."""
    from playwright.sync_api import sync_playwright

    for is_last in (False, True):
        watchdog = threading.Timer(_DRIVER_S, _kill_driver)
        watchdog.start()
        try:
            driver = sync_playwright().start()
            break
        except Exception:  # a plain one, if the process has ended
            if is_last:
                raise
        finally:
            watchdog.cancel()
    try:
        yield driver
    finally:
        driver.stop()


def _kill_driver() -> None:
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "run-driver" in child.cmdline():
                child.kill()


@contextmanager
def open_page(
    browser: Browser,
    origin: str,
    *,
    is_phone: bool = False,
    is_dark: bool = False,
    is_checked: bool = False,
    language: str = "en-US",
) -> Iterator[WatchedPage]:
    """A new page, in a browser that knows nothing.

    Args:
        browser: which.
        origin: of the service; requests to others are faults.
        is_phone: True for the size of a phone.
        is_dark: True if the system has dark colours.
        is_checked: True to allow a checker of accessibility, which the policy of the page forbids.
        language: of the browser.
    """
    size = (390, 844) if is_phone else (1280, 800)
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=2 if is_phone else 1,
        is_mobile=is_phone,
        has_touch=is_phone,
        color_scheme="dark" if is_dark else "light",
        bypass_csp=is_checked,
        locale=language,
    )
    context.set_default_timeout(PATIENCE_S * 1000)
    watched = WatchedPage(context.new_page())

    def on_console(said: ConsoleMessage) -> None:
        if said.type == "error":
            watched.faults.append(f"{said.text} {said.location['url']}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((origin, "blob:", "data:")):
            watched.faults.append(f"asked {request.url}")

    watched.page.on("console", on_console)
    watched.page.on("pageerror", lambda error: watched.faults.append(str(error)))
    watched.page.on("request", on_request)
    watched.page.add_init_script(_TELL_VIOLATIONS)
    yield watched
    context.close()
