"""A headless Chromium that opens files and has no network.

Rule: a machine without Chromium skips what needs it, and says so; where `MRTR_TEST_BROWSER` is
`required`, as in CI, that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import PEERS, ProcessError, install_node_packages
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
    "--window-size=1200,900",
    # Whatever it asks for leads nowhere.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_PROGRAMS = ("chromium", "chromedriver")
_MISSING = (
    "Chromium and its driver are not installed; as root on Debian: "
    "apt-get install -y --no-install-recommends chromium chromium-driver"
)


class Browser:
    """A browser with one window."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, path: Path, fragment: str = "") -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{path.as_uri()}{fragment}")

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return {script}", *arguments)

    def emulate(self, *, media: str = "", **features: str) -> None:
        """Show pages as another medium, or to somebody who prefers something else."""
        wanted = [
            {"name": name.replace("_", "-"), "value": value}
            for name, value in features.items()
        ]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": wanted}
        )

    def violations(self) -> list[str]:
        """Return what axe finds wrong with the page, each with the elements that it is about."""
        axe = (PEERS / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
        self.driver.execute_script(axe)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run().then((results) => done(results.violations));"
        )

        return [
            f"{rule['id']}: {[node['html'][:200] for node in rule['nodes'][:3]]}"
            for rule in found
        ]

    def requested(self) -> set[str]:
        """Return the URLs that were asked for since this was called last."""
        messages = (
            json.loads(entry["message"])["message"]
            for entry in self.driver.get_log("performance")
        )
        return {
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        }

    def complaints(self) -> list[str]:
        """Return what the console said since this was called last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browser_in(folder: Path) -> Iterator[Browser]:
    """Run a browser until the block ends.

    Args:
        folder: where it keeps its profile.
    """
    programs = [shutil.which(name) for name in _PROGRAMS]
    if None in programs:
        if os.environ.get("MRTR_TEST_BROWSER") == "required":
            pytest.fail(_MISSING, pytrace=False)

        pytest.skip(_MISSING)

    try:
        install_node_packages()
    except ProcessError as error:
        pytest.fail(str(error), pytrace=False)

    options = ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)

    options.binary_location = str(programs[0])
    options.set_capability(
        "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
    )
    driver = Chrome(options=options, service=ChromeService(str(programs[1])))
    try:
        driver.execute_cdp_cmd("Network.enable", {})
        conditions = {
            "offline": True,
            "latency": 0,
            "downloadThroughput": 0,
            "uploadThroughput": 0,
        }

        driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)
        yield Browser(driver)
    finally:
        driver.quit()
