"""Users in a browser: what each is offered, signing out in all tabs, the view of administrators."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.e2e.test_page import signed_in
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body
from tests.support.browser import why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_PUBLIC = [{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    return {}  # jobs run


@pytest.fixture(scope="module")
def boss(operator: Client) -> Client:
    return user(operator, "boss", "admin")


@pytest.fixture(scope="module")
def jobs(alice: Client, bob: Client) -> dict[str, str]:
    """A job of each of two users, which both can see, after its end."""
    found = {}
    for name, client in (("alice", alice), ("bob", bob)):
        found[name] = client.create(job_body("true", TrainingJobName=f"of-{name}", Labels=_PUBLIC))
        client.until(found[name])
    return found


@pytest.fixture(scope="module")
def refusals(alice: Client, jobs: dict[str, str]) -> int:
    """More entries of the audit log than a page has."""
    for _ in range(101):
        assert alice.call("DELETE", f"/runs/{jobs['bob']}").status_code == 403
    return 101


def _link(client: Client) -> str:
    link: str = client.call("POST", "/pagelinks").json()["Url"]
    return link


def _open_menu(page: Page) -> Any:
    page.locator(".head .menu summary").click()
    return page.locator(".head .menu-box")


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_the_head_says_who_is_signed_in(
    browser: Browser, operator: Client, alice: Client, jobs: dict[str, str], is_phone: bool
) -> None:
    looks: dict[str, Any] = {"is_phone": is_phone, "is_checked": True}
    with signed_in(browser, alice, **looks) as watched:
        menu = _open_menu(watched.page)
        for text in ("alice", "may submit jobs", "local"):
            expect(menu).to_contain_text(text)
        expect(menu.get_by_role("link", name="Administration")).to_have_count(0)
        assert watched.accessibility_faults() == []
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        menu.get_by_role("link", name="My jobs").click()
        expect(menu).to_be_hidden()
        expect(watched.page.get_by_role("link", name="of-alice")).to_be_visible()
        expect(watched.page.get_by_role("link", name="of-bob")).to_have_count(0)
        assert watched.faults == []
    with signed_in(browser, operator, **looks) as watched:
        menu = _open_menu(watched.page)
        expect(menu).to_contain_text("key of the service")
        expect(menu).not_to_contain_text("Workspaces")
        watched.page.keyboard.press("Escape")
        expect(menu).to_be_hidden()
        assert watched.faults == []


def test_only_what_a_user_may_do_is_offered(
    browser: Browser, alice: Client, boss: Client, reader: Client, jobs: dict[str, str]
) -> None:
    for client, of, expected in (
        (alice, "alice", ["Re-run …", "Delete"]),
        (alice, "bob", ["Re-run …"]),
        (boss, "bob", ["Re-run …", "Delete"]),
        (reader, "bob", []),
    ):
        with signed_in(browser, client, f"run={jobs[of]}") as watched:
            expect(watched.page.get_by_role("heading", level=1)).to_have_text(f"of-{of}")
            buttons = watched.page.locator(".job-title .buttons")
            expect(buttons.get_by_role("link", name="Compare request")).to_be_visible()
            names = buttons.get_by_role("button").all_inner_texts()
            assert [name for name in names if name in ("Stop", "Re-run …", "Delete")] == expected
            assert watched.faults == []


def test_jobs_of_others_are_left_out_of_a_deletion(
    browser: Browser, alice: Client, bob: Client, jobs: dict[str, str]
) -> None:
    mine = alice.create(job_body("true", TrainingJobName="to-be-deleted", Labels=_PUBLIC))
    alice.until(mine)
    with signed_in(browser, alice, f"only={mine},{jobs['bob']}") as watched:
        page = watched.page
        picked = page.locator(".picked")
        expect(picked).to_contain_text("1 belongs to others")
        picked.get_by_role("button", name="Delete…").click()
        expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text(["to-be-deleted"])
        page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
        expect(page.get_by_role("link", name="to-be-deleted")).to_have_count(0)
        expect(page.locator(".picked [role=alert]")).to_have_count(0)
        assert watched.faults == []
    assert bob.call("GET", f"/runs/{jobs['bob']}/job").status_code == 200


def test_signing_out_ends_all_tabs(browser: Browser, alice: Client, bob: Client) -> None:
    with signed_in(browser, alice) as watched:
        page = watched.page
        other = page.context.new_page()
        other.goto(f"{alice.info.endpoint}/ui/#q=status=Running")
        expect(other.locator(".head .menu summary")).to_have_text("alice")
        _open_menu(page).get_by_role("button", name="Sign out").click()
        for tab in (page, other):
            expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.context.cookies() == []
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        # Another user of this browser: all tabs are theirs.
        page.goto(_link(bob))
        for tab in (page, other):
            expect(tab.locator(".head .menu summary")).to_have_text("bob")
        other.goto(_link(alice))
        for tab in (page, other):
            expect(tab.locator(".head .menu summary")).to_have_text("alice")
        assert [fault for fault in watched.faults if "401" not in fault] == []


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_administrators_see_the_state_of_the_service(
    browser: Browser,
    operator: Client,
    alice: Client,
    boss: Client,
    jobs: dict[str, str],
    refusals: int,
    is_phone: bool,
) -> None:
    quota = {"CPUs": 16, "RunningJobs": 4, "QueuedJobs": 50}
    assert operator.call("PUT", "/users/alice/quota", body=quota).status_code == 200
    with signed_in(browser, boss, is_phone=is_phone, is_checked=True) as watched:
        page = watched.page
        _open_menu(page).get_by_role("link", name="Administration").click()
        row = page.get_by_role("region", name="Users").get_by_role("row", name="alice")
        expect(row).to_contain_text(alice.info.access_key_id)
        expect(row).to_contain_text("0 / 16")
        expect(row).to_contain_text("0 / 50")
        expect(page.get_by_role("region", name="Workspaces").get_by_role("row", name="local")).to_contain_text(
            "alice"
        )
        expect(page.get_by_role("region", name="Service")).to_contain_text(str(operator.info.pid))
        expect(page.get_by_role("row", name="job folders")).to_be_visible()
        page.get_by_label("User", exact=True).fill("alice")
        page.get_by_label("Request").fill(f"delete /api/v1/runs/{jobs['bob']}")
        page.get_by_role("button", name="Filter").click()
        log = page.get_by_role("region", name="Audit log").locator("tbody tr")
        expect(log).to_have_count(100)
        expect(log.first).to_contain_text(jobs["bob"])
        expect(page).to_have_url(re.compile("user=alice&action=delete"))
        newest = log.first.inner_text()
        page.get_by_role("button", name="Older").click()
        expect(log).to_have_count(refusals - 100)
        expect(page.get_by_role("button", name="Older")).to_be_disabled()
        page.get_by_role("button", name="Newer").click()
        expect(log).to_have_count(100)
        assert log.first.inner_text() == newest
        assert alice.info.access_key_secret not in page.content()
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.faults == []
    with signed_in(browser, alice, "view=admin") as watched:
        expect(watched.page.get_by_role("alert")).to_contain_text("'admin'")
        expect(watched.page.get_by_role("table")).to_have_count(0)
        assert [fault for fault in watched.faults if "403" not in fault] == []
