"""The browser that tests of pages share; where there is none they are skipped, and say so."""

import socket
import subprocess
import time
from collections.abc import Iterator
from urllib.error import URLError

import pytest

from tests.view.browser import CHROME, DRIVER, Browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not (CHROME and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                found = Browser(port, tmp_path_factory.mktemp("browser") / "profile")
                break
            except URLError:
                time.sleep(0.1)
        else:
            pytest.skip("chromedriver does not answer")
        yield found
        found.call("", method="DELETE")
    finally:
        driver.terminate()
        driver.wait(10)
