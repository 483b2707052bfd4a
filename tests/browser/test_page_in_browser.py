"""Facts about pages in a real browser, opened from disk, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import Browser, browser_in
from builders import Step, cassette_of, loaded, missed, player_of, retry, rpc, tool
from messages import NO, asks, form, text
from processes import CASSETTES
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.runs import report_of_replay
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.files.reports import write_page

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
EXAMPLES = CASSETTES.parent / "docs" / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the pages of this module."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Browser]:
    """A browser for this module."""
    with browser_in(folder) as running:
        yield running


@pytest.fixture(scope="module")
def demo(folder: Path) -> Path:
    """The page of the demo server's cassette."""
    path = folder / "demo.html"
    write_page(path, load_cassette(CASSETTES / "demo-server.json"))
    return path


@pytest.fixture(scope="module")
def noted(folder: Path) -> Path:
    """A page with branches, hostile texts, misses and differences."""
    path = folder / "noted.html"
    first = recording("Sure?")
    second = recording(HOSTILE_WORDS)
    player = player_of(*script_of(HOSTILE_WORDS))
    missed(player, tool("deploy", env=HOSTILE_WORDS))
    missed(player, tool(HOSTILE_WORDS))
    write_page(path, second, report_of_replay(player), first)

    return path


HOSTILE_WORDS = (
    "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
    "<style>* { display: none }</style>\"' onfocus=window.hurt=1 autofocus <form action=/x>"
)


def script_of(words: str) -> tuple[Step, ...]:
    """Return a call that asks in these words, and is answered in two ways."""
    ask: dict[str, Any] = asks(state=STATE) | {"inputRequests": {words: form(words)}}
    properties = {words: {"type": "string", "title": words, "description": words}}
    ask["inputRequests"][words]["params"]["requestedSchema"] = {
        "properties": properties
    }
    yes = {"action": "accept", "content": {words: words}}

    return (
        (CALL, ask),
        (retry(CALL, {words: yes}, state=STATE), text(words)),
        (retry(CALL, {words: NO}, state=STATE), {"isError": True, "content": [words]}),
    )


def recording(words: str) -> Cassette:
    """Return the recording of such a call."""
    return loaded(cassette_of(*script_of(words)), "talk.json")


def is_open(browser: Browser, place: str) -> bool:
    """Tell whether a call is open."""
    return bool(browser.run("document.getElementById(arguments[0]).open", place))


def test_page_shows_what_was_recorded(browser: Browser, demo: Path) -> None:
    """Sessions, rows, bars of time, forms with their answers and results are there to be seen."""
    browser.open(demo, "#i10")

    assert browser.one("h1").text == "demo-server.json"
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, "li.call")) == 19

    person = browser.one("#i10 .person-time")

    assert person.value_of_css_property("fill") == 'url("#hatch")'
    assert person.rect["width"] > 1
    assert (
        browser.one("#i10 .server-time").value_of_css_property("fill").startswith("rgb")
    )
    assert browser.one("#i10t1 .value").text == "analytics"
    assert not browser.one("#calls input").is_enabled()
    assert browser.one("#i10 .outcome").text == "Accepted"
    assert "https://example.com/auth" in browser.run("document.body.textContent")


def test_page_asks_nobody_for_anything(
    browser: Browser, demo: Path, noted: Path
) -> None:
    """Nothing but the file is requested, and its policy stops nothing that it needs."""
    browser.requested()
    browser.complaints()
    for path in (demo, noted):
        browser.open(path)
        browser.one("#open-all").click()

        assert browser.requested() <= {path.as_uri(), "about:blank"}
        assert browser.complaints() == []


def test_recorded_texts_do_nothing(browser: Browser, noted: Path) -> None:
    """Scripts, styles and handlers that a server wrote are texts."""
    browser.open(noted)
    browser.one("#open-all").click()

    assert browser.run("window.hurt === undefined")

    counts = "['script', 'style', 'img', 'form'].map(n => document.getElementsByTagName(n).length)"

    assert browser.run(counts) == [1, 1, 0, 0]
    assert HOSTILE_WORDS in browser.one("#i1 .final pre").text


def test_apps_are_shown_without_power(browser: Browser, folder: Path) -> None:
    """A `ui://` page is laid out; its scripts, pictures, links and refreshes lead nowhere."""
    hostile = (
        "<p>Hello</p><script>parent.hurt = 1; location = 'http://example.com/a'</script>"
        "<img src='http://example.com/b.png' onerror='parent.hurt = 1'>"
        "<meta http-equiv=refresh content='0;url=http://example.com/c'>"
        "<a id=leave href='http://example.com/d'>leave</a>"
    )

    content = {
        "uri": "ui://app/main",
        "mimeType": "text/html;profile=mcp-app",
        "text": hostile,
    }

    read = rpc("resources/read", {"uri": content["uri"]})
    path = folder / "app.html"
    recorded = loaded(cassette_of((read, {"contents": [content]})), "app.json")
    write_page(path, recorded)
    browser.requested()
    browser.open(path)
    browser.one("#open-all").click()
    frame = browser.one("iframe")
    browser.driver.switch_to.frame(frame)

    assert browser.one("p").text == "Hello"

    browser.one("#leave").click()
    browser.driver.switch_to.default_content()

    assert browser.run("window.hurt === undefined")
    assert browser.requested() <= {path.as_uri(), "about:blank", "about:srcdoc"}


def test_pictures_of_results_are_shown(browser: Browser, folder: Path) -> None:
    """A picture that a tool returns is laid out, and only what is one; nothing is fetched for it."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    contents = [
        {"type": "image", "mimeType": kind, "data": data}
        for kind, data in (
            ("image/png", pixel),
            ("image/png;x,<script>", pixel),
            ("text/html", pixel),
            ("image/png", "http://example.com/a.png"),
            ("image/png", "<github:1>"),
        )
    ]

    path = folder / "picture.html"
    recorded = loaded(
        cassette_of((tool("draw"), {"content": contents})), "picture.json"
    )
    write_page(path, recorded)
    browser.requested()
    browser.complaints()
    browser.open(path)
    browser.one("#open-all").click()
    widths = (
        "[...document.querySelectorAll('.final img')].map(image => image.naturalWidth)"
    )

    assert browser.run(widths) == [1]

    asked = {url for url in browser.requested() if not url.startswith("data:")}

    assert asked <= {path.as_uri(), "about:blank"}
    assert browser.complaints() == []


def test_links_lead_to_calls_and_turns(browser: Browser, demo: Path) -> None:
    """A link to a turn opens its call and scrolls there, also where a search hid it."""
    browser.open(demo, "#i13t1")

    top = "document.getElementById(arguments[0]).getBoundingClientRect().top"

    assert is_open(browser, "i13")
    assert not is_open(browser, "i12")
    assert 0 <= browser.run(top, "i13t1") < 900

    browser.one("#filter").send_keys("errors")

    assert not browser.one("#i12").is_displayed()

    browser.run("location.hash = '#i12t3'")

    assert is_open(browser, "i12")
    assert browser.one("#i12t3").is_displayed()


def search(browser: Browser, words: str) -> str:
    """Search for something and return what the page says of it."""
    query = browser.one("#query")
    query.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE, words)
    browser.driver.execute_async_script("setTimeout(arguments[0], 200)")

    return browser.one("#found").text


def test_search_looks_into_everything(browser: Browser, demo: Path) -> None:
    """Closed calls and the fields of forms are found; all words have to be there."""
    browser.open(demo)

    assert search(browser, "eu-west-1") == "1 of 19 calls"
    assert browser.one("#i10").is_displayed()
    assert not browser.one("#i9").is_displayed()
    assert search(browser, "STAGING decline") == "1 of 19 calls"
    assert search(browser, "nowhere to be found") == "0 of 19 calls"
    assert not browser.one("section.session").is_displayed()
    assert search(browser, "") == ""

    browser.one("#filter").send_keys("calls that ask")

    assert browser.one("#found").text == "11 of 19 calls"


def test_reviewer_finds_a_changed_question(browser: Browser, folder: Path) -> None:
    """The list of what differs is in sight at once; it leads to both forms, side by side."""
    first = load_cassette(EXAMPLES / "flights-before.json")
    second = load_cassette(EXAMPLES / "flights-after.json")
    path = folder / "two.html"
    write_page(path, second, first=first)
    browser.open(path)

    links = browser.driver.find_elements(By.CSS_SELECTOR, "#differences a")

    assert [link.text for link in links] == ["#2", "#3", "#4", "#4"]
    assert all(link.rect["y"] < 900 for link in links)

    links[0].click()
    before = browser.one("#c2 .before")
    after = browser.one("#c2 .after")

    assert before.rect["y"] == after.rect["y"]
    assert before.rect["x"] + before.rect["width"] <= after.rect["x"]
    assert "Travel insurance" in before.text
    assert "I agree to pay 29 EUR for travel insurance" in after.text

    browser.run("location.hash = '#o4'")

    assert browser.one("#o4").is_displayed()


def test_keyboard_is_enough(browser: Browser, demo: Path) -> None:
    """Keys search, go from call to call and open them; a box switches them off."""
    browser.open(demo)
    focused = "document.activeElement.id || document.activeElement.parentElement.id"

    def press(*keys: str) -> None:
        for key in keys:
            browser.driver.switch_to.active_element.send_keys(key)

    press("/")

    assert browser.run(focused) == "query"

    press("deploy", Keys.ESCAPE)

    assert browser.one("#query").get_property("value") == ""

    browser.run("document.activeElement.blur()")
    press("j", "j", "j", "k")

    assert browser.run(focused) == "i2"

    press(Keys.ENTER)

    assert is_open(browser, "i2")

    browser.one("#keys").click()
    browser.run("document.activeElement.blur()")
    press("/")

    assert browser.run(focused) != "query"


def test_page_without_its_script_is_whole(browser: Browser, demo: Path) -> None:
    """Calls open and links lead to turns; tools that would do nothing are not shown."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", {"value": True}
    )
    try:
        browser.open(demo, "#i12t2")

        assert not browser.one(".toolbar").is_displayed()
        assert browser.one("#i12t2").is_displayed()
        assert not browser.one("#i7t1").is_displayed()

        browser.one("#i7 > summary").click()

        assert browser.one("#i7t1").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", {"value": False}
        )


def test_page_prints_everything(browser: Browser, demo: Path) -> None:
    """On paper all calls are open, and there are no tools."""
    browser.open(demo)

    assert not browser.one("#i7t1").is_displayed()

    browser.emulate(media="print")
    try:
        assert browser.run("document.getElementById('i7t1').checkVisibility()")
        assert not browser.one(".toolbar").is_displayed()
    finally:
        browser.emulate()


@pytest.mark.parametrize(("name", "scheme"), [("demo", "light"), ("noted", "dark")])
def test_page_is_accessible(
    browser: Browser, name: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    """Axe finds nothing wrong, in light and in dark, with all calls open."""
    browser.emulate(prefers_color_scheme=scheme)
    try:
        browser.open(request.getfixturevalue(name))
        browser.one("#open-all").click()
        ground = browser.one("body").value_of_css_property("background-color")

        assert ("15, 17, 22" in ground) == (scheme == "dark")
        assert browser.violations() == []
    finally:
        browser.emulate()
