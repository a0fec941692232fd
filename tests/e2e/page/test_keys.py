"""Keys that expire, as the page shows them; a sign-out that ends copies of cookie and key."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.service.identity.expiry import DAY_S, expire, with_expiring_key
from tests.service.identity.test_two_users import user
from tests.service.services import Client
from tests.support.browser import WatchedPage, open_page, why_no_browser

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

_LIVE = re.compile("live|实时")


@pytest.fixture(scope="module")
def keys(operator: Client) -> dict[str, Client]:
    """Keys of a user by what becomes of them."""
    found = {"lasting": user(operator, "mia")}
    for name, days in (("ended", 1.0), ("soon", 13.5), ("later", 60.5)):
        found[name] = with_expiring_key(operator, "mia", days * DAY_S)
    expire(operator, found["ended"], "mia")
    return found


def _link(client: Client) -> str:
    link: str = client.call("POST", "/pagelinks").json()["Url"]
    return link


def _open_admin(watched: WatchedPage, client: Client) -> None:
    watched.page.goto(f"{_link(client)}&view=admin")
    expect(watched.page.locator(".connection")).to_have_text(_LIVE)


@pytest.mark.parametrize("is_phone", [False, True], ids=["desktop", "phone"])
def test_administrators_see_which_keys_end(
    browser: Browser, operator: Client, keys: dict[str, Client], is_phone: bool
) -> None:
    with open_page(browser, operator.info.endpoint, is_phone=is_phone, is_checked=True) as watched:
        page = watched.page
        _open_admin(watched, operator)
        users = page.get_by_role("region", name="Users")
        expect(users.get_by_role("columnheader", name="Key ends")).to_be_visible()

        def end_of(name: str) -> Any:
            return users.get_by_role("row").filter(has_text=keys[name].info.access_key_id).get_by_role("cell").last

        expect(end_of("lasting")).to_have_text("")
        expect(end_of("later")).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d$"))
        expect(end_of("soon")).to_contain_text("14 d left")
        expect(end_of("soon")).to_have_class("warn")
        expect(end_of("ended")).to_contain_text("has ended")
        expect(end_of("ended")).to_have_class("bad")
        log = page.get_by_role("region", name="Audit log")
        created = log.get_by_role("row").filter(has_text=keys["later"].info.access_key_id)
        expect(created).to_contain_text("until")
        assert watched.accessibility_faults() == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.faults == []


def test_the_expiry_is_chinese_too(browser: Browser, operator: Client, keys: dict[str, Client]) -> None:
    with open_page(browser, operator.info.endpoint, language="zh-CN") as watched:
        _open_admin(watched, operator)
        users = watched.page.get_by_role("region", name="用户")
        expect(users.get_by_role("columnheader", name="密钥到期")).to_be_visible()
        expect(users).to_contain_text("，已到期")
        expect(users).to_contain_text("，剩 14 天")
        assert watched.faults == []


def test_a_page_says_that_its_key_has_ended(browser: Browser, operator: Client) -> None:
    assert operator.call("POST", "/users", body={"Name": "li"}).status_code == 200
    li = with_expiring_key(operator, "li", DAY_S)
    with open_page(browser, li.info.endpoint) as watched:
        page = watched.page
        page.goto(_link(li))
        expect(page.locator(".connection")).to_have_text(_LIVE)
        expired_at = expire(operator, li, "li")
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text(expired_at)
        # 403: a request that the service held when the key ended.
        assert [fault for fault in watched.faults if "401" not in fault and "403" not in fault] == []


def test_a_copy_of_cookie_and_key_is_refused_after_the_sign_out(browser: Browser, operator: Client) -> None:
    eve = user(operator, "eve")
    with open_page(browser, eve.info.endpoint) as watched:
        page = watched.page
        with page.expect_response("**/ui/session") as answer:
            page.goto(_link(eve))
        key = answer.value.json()["key"]
        expect(page.locator(".connection")).to_have_text(_LIVE)
        cookies: Any = page.context.cookies()
        copied = {"X-PAI-UI": key, "Cookie": "; ".join(f"{one['name']}={one['value']}" for one in cookies)}
        about = f"{eve.info.endpoint}/ui/about"
        assert eve.session.get(about, headers=copied).json()["user"] == "eve"
        page.locator(".head .menu summary").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert eve.session.get(about, headers=copied).status_code == 401
        # Put back into the browser, the cookie opens nothing, even with a request that has the key.
        page.context.add_cookies(cookies)
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        replay = "key => fetch('/ui/about', {headers: {'X-PAI-UI': key}}).then(answer => answer.status)"
        assert page.evaluate(replay, key) == 401
        # Another link signs it in again.
        page.goto(_link(eve))
        expect(page.locator(".head .menu summary")).to_have_text("eve")
        assert [fault for fault in watched.faults if "401" not in fault] == []
