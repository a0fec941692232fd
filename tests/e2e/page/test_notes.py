"""Stars, tags, notes, the archive and saved views in a browser: several users of one service."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.e2e.test_page import signed_in
from tests.service.services import Client, job_body
from tests.support.browser import why_no_browser
from tests.support.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]
PUBLIC = [{"Key": ACCESSIBILITY_LABEL, "Value": "PUBLIC"}]
ALWAYS = ("Starred", "Archived")  # views of every service


def new_job(client: Client, name: str) -> str:
    client.clear(name)
    return client.create(job_body(TrainingJobName=name, Labels=PUBLIC))


def row(page: Page, job_id: str) -> Any:
    return page.locator(f"[data-run={job_id}]")


def test_a_star_is_in_the_list_at_once_stays_and_is_not_that_of_others(
    browser: Browser, alice: Client, reader: Client
) -> None:
    job_id = new_job(alice, "starred")
    with signed_in(browser, alice) as mine, signed_in(browser, reader) as theirs:
        star = row(mine.page, job_id).get_by_role("button", name="Star starred")
        expect(star).to_have_attribute("aria-pressed", "false")
        star.click()
        expect(star).to_have_attribute("aria-pressed", "true")
        open_views(mine.page).get_by_role("link", name="Starred").click()
        expect(mine.page.locator("tr[data-run]")).to_have_count(1)
        mine.page.reload()
        expect(star).to_have_attribute("aria-pressed", "true")
        mine.page.evaluate(f"location.hash = 'run={job_id}'")
        expect(mine.page.get_by_role("button", name="Star starred")).to_have_attribute("aria-pressed", "true")
        # A user who may only read has stars, too.
        other = row(theirs.page, job_id).get_by_role("button", name="Star starred")
        expect(other).to_have_attribute("aria-pressed", "false")
        other.click()
        theirs.page.evaluate("location.hash = 'q=star=true'")
        expect(row(theirs.page, job_id)).to_be_visible()
        assert mine.faults == theirs.faults == []


def test_a_note_and_tags_are_seen_by_all_and_changed_by_those_who_may(
    browser: Browser, alice: Client, reader: Client
) -> None:
    job_id = new_job(alice, "noted")
    address = f"run={job_id}"
    with (
        signed_in(browser, alice, address, is_checked=True) as mine,
        signed_in(browser, reader, address) as theirs,
    ):
        page = mine.page
        page.get_by_role("button", name="Add a note").click()
        expect(page.get_by_role("textbox", name="Note")).to_be_focused()
        page.keyboard.type("<b>lr 0.1</b>\nbetter than before")
        assert mine.accessibility_faults() == []
        page.get_by_role("button", name="Save").click()
        for tag in ("best", "paper, 2"):
            page.get_by_role("textbox", name="New tag").fill(tag.replace(",", ""))
            page.keyboard.press("Enter")
            expect(page.get_by_role("link", name=tag.replace(",", ""), exact=True)).to_be_visible()
        # Without a reload, and as plain text with its lines.
        expect(theirs.page.locator(".note")).to_have_text("<b>lr 0.1</b>\nbetter than before")
        expect(theirs.page.get_by_role("link", name="paper 2")).to_be_visible()
        expect(theirs.page.get_by_role("textbox", name="New tag")).to_have_count(0)
        for name in ("Edit the note", "Remove the tag best", "Archive"):
            expect(theirs.page.get_by_role("button", name=name)).to_have_count(0)
            expect(page.get_by_role("button", name=name)).to_have_count(1)
        page.get_by_role("button", name="Remove the tag best").click()
        expect(theirs.page.get_by_role("link", name="best", exact=True)).to_have_count(0)
        page.reload()
        expect(page.locator(".note")).to_contain_text("better than before")
        page.get_by_role("link", name="paper 2").click()
        expect(row(page, job_id)).to_be_visible()
        expect(page).to_have_url(re.compile("tags"))
        assert mine.accessibility_faults() == []
        assert mine.faults == theirs.faults == []


def test_of_two_who_edit_a_note_the_second_sees_the_text_of_the_first(
    browser: Browser, operator: Client, alice: Client
) -> None:
    job_id = new_job(alice, "contested")
    address = f"run={job_id}"
    with signed_in(browser, alice, address) as first, signed_in(browser, operator, address) as second:
        for watched, text in ((first, "by alice"), (second, "by the operator")):
            watched.page.get_by_role("button", name="Add a note").click()
            watched.page.get_by_role("textbox", name="Note").fill(text)
        first.page.get_by_role("button", name="Save").click()
        expect(first.page.locator(".note")).to_have_text("by alice")
        second.page.get_by_role("button", name="Save").click()
        expect(second.page.get_by_role("alert")).to_contain_text("by alice")
        expect(second.page.get_by_role("textbox", name="Note")).to_have_value("by the operator")
        expect(first.page.locator(".note")).to_have_text("by alice")
        second.page.get_by_role("textbox", name="Note").fill("by both")
        second.page.get_by_role("button", name="Save").click()
        expect(first.page.locator(".note")).to_have_text("by both")
        # The browser writes the refused request (409) on its console.
        assert [fault for fault in second.faults if "409" not in fault] == first.faults == []


def test_a_draft_of_a_note_is_there_again_until_it_is_saved_or_dropped(
    browser: Browser, operator: Client, alice: Client
) -> None:
    job_id, other = new_job(alice, "drafted"), new_job(alice, "other")
    with signed_in(browser, alice, f"run={job_id}", is_checked=True) as watched:
        page = watched.page
        box = page.get_by_role("textbox", name="Note")
        page.get_by_role("button", name="Add a note").click()
        expect(box).to_be_focused()
        page.keyboard.type("half a tho")
        page.reload()
        expect(box).to_have_value("half a tho")
        assert not box.evaluate("box => box === document.activeElement")  # the page is read from its top
        box.focus()
        page.keyboard.press("End")
        page.keyboard.type("ught")
        page.evaluate(f"location.hash = 'run={other}'")
        expect(page.get_by_role("button", name="Add a note")).to_be_visible()
        page.go_back()
        expect(box).to_have_value("half a thought")
        assert watched.accessibility_faults() == []
        # Another user of this browser gets nothing of it.
        page.goto(operator.call("POST", "/pagelinks").json()["Url"] + f"&run={job_id}")
        expect(page.get_by_role("button", name="Add a note")).to_be_visible()
        page.goto(alice.call("POST", "/pagelinks").json()["Url"] + f"&run={job_id}")
        expect(box).to_have_value("half a thought")
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".note")).to_have_text("half a thought")
        page.get_by_role("button", name="Edit the note").click()
        box.fill("worse")
        page.get_by_role("button", name="Cancel").click()
        page.reload()
        expect(page.locator(".note")).to_have_text("half a thought")
        expect(box).to_have_count(0)
        assert watched.faults == []


def test_nothing_is_lost_that_is_written_while_a_note_is_being_saved(browser: Browser, alice: Client) -> None:
    job_id, other = new_job(alice, "slow"), new_job(alice, "other")
    with signed_in(browser, alice, f"run={job_id}") as watched:
        page, held = watched.page, list[Route]()
        box = page.get_by_role("textbox", name="Note")
        page.route("**/annotations", lambda route: held.append(route))
        page.get_by_role("button", name="Add a note").click()
        box.fill("first")
        page.get_by_role("button", name="Save").click()
        box.fill("first, and more")
        until(lambda: bool(page.wait_for_timeout(50) or held), "the request")
        held.pop().continue_()
        until(lambda: alice.get(f"/runs/{job_id}/job")["annotations"]["note"] == "first", "the saved note")
        expect(box).to_have_value("first, and more")
        page.get_by_role("button", name="Save").click()
        until(lambda: bool(page.wait_for_timeout(50) or held), "the second request")
        page.evaluate(f"location.hash = 'run={other}'")
        expect(page.get_by_role("heading", name="other")).to_be_visible()
        with page.expect_response("**/annotations"):
            held.pop().continue_()
        page.go_back()
        expect(page.locator(".note")).to_have_text("first, and more")
        expect(box).to_have_count(0)
        assert watched.faults == []


def test_jobs_are_archived_tagged_and_starred_together(browser: Browser, alice: Client) -> None:
    ids = [new_job(alice, f"many-{number}") for number in range(3)]
    with signed_in(browser, alice, "q=name~many") as watched:
        page = watched.page
        expect(page.locator("tr[data-run]")).to_have_count(3)
        for job_id in ids[:2]:
            row(page, job_id).get_by_role("checkbox").click()
        bar = page.locator(".picked")
        bar.get_by_role("button", name="Star", exact=True).click()
        for job_id in ids[:2]:
            expect(row(page, job_id).locator(".star")).to_have_attribute("aria-pressed", "true")
        expect(bar.get_by_role("button", name="Unstar")).to_be_visible()
        bar.get_by_label("Tag", exact=True).or_(bar.locator("summary", has_text="Tag")).first.click()
        bar.get_by_role("textbox", name="New tag").fill("sweep")
        page.keyboard.press("Enter")
        page.evaluate("location.hash = 'q=name~many+tags=sweep'")
        expect(page.locator("tr[data-run]")).to_have_count(2)
        page.evaluate("location.hash = 'q=name~many'")
        expect(page.locator("tr[data-run]")).to_have_count(3)
        for job_id in ids[:2]:
            row(page, job_id).get_by_role("checkbox").click()
        bar.get_by_role("button", name="Archive", exact=True).click()
        expect(page.locator("tr[data-run]")).to_have_count(1)
        page.evaluate("location.hash = 'q=name~many+archived=true'")
        expect(page.locator("tr[data-run]")).to_have_count(2)
        page.evaluate(f"location.hash = 'run={ids[0]}'")  # an archived job is read as others are
        page.get_by_role("button", name="Unarchive").click()
        expect(page.get_by_role("button", name="Archive", exact=True)).to_be_visible()
        page.evaluate("location.hash = 'q=name~many'")
        expect(page.locator("tr[data-run]")).to_have_count(2)
        assert watched.faults == []


def open_views(page: Page) -> Any:
    page.locator("summary", has_text="Views").click()
    return page.locator(".menu[open]")


def test_views_are_shared_by_name_and_by_link(
    browser: Browser, operator: Client, alice: Client, reader: Client
) -> None:
    new_job(alice, "viewed")
    address = "q=name~viewed&sort=name"
    with signed_in(browser, alice, f"{address}&run=gone", is_checked=True) as mine:
        page = mine.page
        page.evaluate("address => { location.hash = address }", address)
        menu = open_views(page)
        for name, shared in (("private", False), ("morning", True)):
            menu.get_by_label("Name of this view").fill(name)
            menu.get_by_role("checkbox").set_checked(shared)
            menu.get_by_role("button", name="Save").click()
            expect(menu.get_by_role("link", name=name)).to_be_visible()
        assert mine.accessibility_faults() == []
        page.reload()
        expect(open_views(page).get_by_role("link")).to_have_text([*ALWAYS, "morning", "private"])
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator(".menu[open]").get_by_role("button", name="Copy the link").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        link = page.evaluate("navigator.clipboard.readText()")
        assert link == f"{alice.info.endpoint}/ui/#{address}"
    with signed_in(browser, reader) as theirs:
        menu = open_views(theirs.page)
        expect(menu.get_by_role("link")).to_have_text([*ALWAYS, "morning"])
        expect(menu.get_by_role("checkbox")).to_have_count(0)  # who may only read shares nothing
        expect(menu.get_by_role("button", name="Delete the view morning")).to_have_count(0)
        menu.get_by_role("link", name="morning").click()
        expect(theirs.page.locator("tr[data-run]")).to_have_count(1)
        theirs.page.goto(link)
        expect(theirs.page.locator("tr[data-run]")).to_have_count(1)
        assert theirs.faults == []
    with signed_in(browser, alice) as mine:
        open_views(mine.page).get_by_role("button", name="Delete the view morning").click()
        expect(mine.page.locator(".menu[open]").get_by_role("link")).to_have_text([*ALWAYS, "private"])
        assert mine.faults == []


def test_views_of_the_browser_are_moved_to_the_service(browser: Browser, alice: Client) -> None:
    with signed_in(browser, alice) as watched:
        page = watched.page
        place = page.locator(".head .place").inner_text()
        stored = '{"old": "q=name~old&run=x", "private": "q=a"}'
        page.evaluate("([place, views]) => localStorage.setItem(`pai-ui-views ${place}`, views)", [place, stored])
        page.reload()
        menu = open_views(page)
        menu.get_by_role("button", name="Move 2 views").click()
        expect(menu.get_by_role("link")).to_have_text([*ALWAYS, "old", "private", "private (2)"])
        expect(menu.get_by_role("link", name="old")).to_have_attribute("href", "#q=name~old")
        page.reload()
        expect(open_views(page).get_by_role("link")).to_have_count(5)
        expect(page.get_by_role("button", name="Move")).to_have_count(0)
        assert watched.faults == []
