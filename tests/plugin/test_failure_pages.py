"""Facts about the pages that failed tests have."""

from __future__ import annotations

from pages import assert_readable, assert_safe, parsed
from suites import ONE_TEST

pytest_plugins = ["pytester"]

FAILS = """
    import pytest
    from agent import deploy, swallowed

    @pytest.mark.mrtr_cassette({cassette!r})
    def test_declines(mrtr_cassette):
        {body}
"""


def page_at(path):
    """Return a page, which is as every page must be."""
    page = parsed(path.read_text("utf-8").removeprefix("<!doctype html>\n"))
    assert_safe(page)
    assert_readable(page)

    return page


def test_failed_test_has_a_page(suite, recorded):
    """Its report names the page, on which the misses stand."""
    body = "deploy(mrtr_cassette.url, confirm=False)"
    suite.write("test_page.py", FAILS.format(cassette=str(recorded), body=body))
    suite.run("--mrtr-view=failed", failed=1).stdout.fnmatch_lines(
        ["*mrtr-cassette: page*", "mrtr-view/deploy.html"]
    )
    page = page_at(suite.path / "mrtr-view/deploy.html")

    assert "answers-differ" in page.by_id("m1").text
    assert "never played" not in page.by_id("i1").text
    assert (suite.path / "mrtr-view/.gitignore").read_text() == "*\n"


def test_test_that_fails_while_recording_has_a_page(suite):
    """What had been recorded is shown, though no cassette is written."""
    suite.write("test_page.py", ONE_TEST.replace("Deployed to test", "another text"))
    suite.run("--mrtr-view=failed", failed=1).stdout.fnmatch_lines(
        ["mrtr-view/cassettes/test_page/test_deploy.html"]
    )
    page = page_at(suite.path / "mrtr-view/cassettes/test_page/test_deploy.html")

    assert "Deployed to test" in page.text
    assert not (suite.path / "cassettes/test_page/test_deploy.json").exists()


def test_pages_are_for_failed_tests_that_want_them(suite, recorded):
    """Without the option, and for tests that pass or are skipped, nothing is written."""
    body = "deploy(mrtr_cassette.url, confirm=False)"
    suite.write("test_page.py", FAILS.format(cassette=str(recorded), body=body))
    suite.run(failed=1)
    suite.write(
        "test_page.py", FAILS.format(cassette=str(recorded), body="pytest.skip()")
    )
    suite.run("--mrtr-view=failed", skipped=1)

    assert not (suite.path / "mrtr-view").exists()
