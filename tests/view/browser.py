"""A real browser, driven over WebDriver."""

import json
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

CHROME = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-component-update",
    "--disable-background-networking", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1400,1200",
]  # fmt: skip


class Browser:
    """The few WebDriver calls that the tests need."""

    def __init__(self, port: int, profile: Path) -> None:
        self.open = build_opener(ProxyHandler({})).open
        self.root = f"http://127.0.0.1:{port}"
        options = {"binary": CHROME, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        started = self.call("/session", {"capabilities": {"alwaysMatch": wanted}})
        self.root += f"/session/{started['sessionId']}"

    def call(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        with self.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def run(self, script: str) -> Any:
        return self.call("/execute/sync", {"script": script, "args": []})

    def send(self, command: str, **params: Any) -> Any:
        """One command of the DevTools protocol."""
        return self.call("/goog/cdp/execute", {"cmd": command, "params": params})

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        """Moves the mouse, for real, to a place in the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def until(self, script: str) -> Any:
        """Waits until a script returns something that is true, and returns it."""
        for _ in range(600):
            if found := self.run(script):
                return found
            time.sleep(0.02)
        raise AssertionError(f"still waiting for {script}")

    def press(self, key: str) -> None:
        """Presses a key where the focus is."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})
