"""What the page of a large map costs: to make, to open in Chromium, to hover over and to move in.

    python benchmarks/page.py --length 2048 --layers 12 --heads 12 --kept 8
    python benchmarks/page.py --html view.html          # a page that is there already

The weights are made up: a diagonal, the first token and far ones, in changing parts. Needs `chromium` and
`chromedriver`; the mouse is moved through the DevTools protocol, frames are counted by the page itself.
"drawn" is the time from the request until the first map and its numbers stand there; memory is the peak
resident size of the process that made the page, and of the browser's process that holds it.
"""

import argparse
import json
import math
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np

from headlights import view

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "said",
    "that",
    "nobody",
    "had",
    "seen",
    "such",
    "light",
]
COUNT_FRAMES = """
window.frames_ = []; window.counting_ = true;
const tick = (now) => { window.frames_.push(now); if (window.counting_) requestAnimationFrame(tick); };
requestAnimationFrame(tick);
"""
DRAWN = "return Boolean(document.querySelector('.explorer .readout')?.hasChildNodes())"
FILLED = """
const last = [...document.querySelectorAll('.head canvas')].pop();
return !last || last.getContext('2d').getImageData(0, 0, 1, 1).data[3] > 0;
"""


class Kept(NamedTuple):
    """The largest weights of each row, as `observations.TopWeights` returns them."""

    values: Any
    indices: Any


class Browser:
    """A headless Chromium behind chromedriver."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        driver = shutil.which("chromedriver") or "chromedriver"
        self.driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.root, self.open = f"http://127.0.0.1:{port}", build_opener(ProxyHandler({})).open
        arguments = [*FLAGS, "--window-size=1280,890", f"--user-data-dir={folder}"]
        options = {"args": arguments, "binary": shutil.which("chromium") or shutil.which("google-chrome")}
        wanted = {"goog:chromeOptions": options, "pageLoadStrategy": "none"}
        asked = {"capabilities": {"alwaysMatch": wanted}}
        for _ in range(200):
            try:
                self.root += f"/session/{self.call('/session', asked)['sessionId']}"
                return
            except URLError:
                time.sleep(0.05)
        raise SystemExit("chromedriver does not answer")

    def call(self, path: str, body: dict[str, Any]) -> Any:
        request = Request(self.root + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with self.open(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def run(self, script: str) -> Any:
        return self.call("/execute/sync", {"script": script, "args": []})

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        event = {"type": kind, "x": x, "y": y, **more}
        self.call("/goog/cdp/execute", {"cmd": "Input.dispatchMouseEvent", "params": event})

    def wait(self, script: str, since: float) -> float:
        """Seconds from `since` until the page says yes."""
        while not self.run(script):
            time.sleep(0.01)
        return time.perf_counter() - since

    def peak_mib(self) -> float:
        """The largest resident size that any process of a page has had."""
        peaks = [0.0]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command, status = (folder / "cmdline").read_text(), (folder / "status").read_text()
            except OSError:  # it has ended
                continue
            if "--type=renderer" in command and str(self.driver.pid) in ancestors(folder.name):
                peaks.append(float(status.split("VmHWM:")[1].split()[0]) / 1024)
        return max(peaks)


def ancestors(pid: str) -> list[str]:
    found = []
    while pid not in ("0", "1", ""):
        found.append(pid)
        try:
            pid = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            break
    return found


def made_up(layers: int, heads: int, length: int, kept: int) -> Kept:
    rng = np.random.default_rng(0)
    values = np.empty((layers, heads, length, kept), np.float32)
    indices = rng.integers(0, length, values.shape)
    for layer in range(layers):
        for head in range(heads):
            indices[layer, head, :, 0] = 0
            indices[layer, head, :, 1] = np.clip(np.arange(length) + head % 5 - 2, 0, length - 1)
            parts = [3.0, 1 + head % 4, *[0.1 + 0.3 * (layer % 3)] * (kept - 2)]
            values[layer, head] = rng.dirichlet(parts[:kept], length)
    return Kept(values, indices)


def moving(browser: Browser, seconds: float, act: Any) -> tuple[float, float]:
    """Frames per second, and the longest wait for one in milliseconds, while `act` is repeated."""
    browser.run(COUNT_FRAMES)
    end, step = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        act(step)
        step += 1
    frames = browser.run("window.counting_ = false; return window.frames_")
    gaps = np.diff(frames)
    return 1000 * len(gaps) / (frames[-1] - frames[0]), float(gaps.max())


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    for name, default in (("length", 2048), ("layers", 12), ("heads", 12), ("kept", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=4.0, help="of hovering, and of dragging")
    parser.add_argument("--html", type=Path, help="measure this page instead of making one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = options.html or make(options, Path(folder) / "page.html")
        browser = Browser(f"{folder}/profile")
        try:
            measure(browser, path.resolve(), options.seconds)
        finally:
            browser.driver.terminate()
            browser.driver.wait(10)


def make(options: argparse.Namespace, path: Path) -> Path:
    weights = made_up(options.layers, options.heads, options.length, options.kept)
    words = [WORDS[n % 13] + WORDS[n % 5] * (n % 7 == 0) for n in range(options.length)]
    started = time.perf_counter()
    view.html(weights, words, words, title=f"{options.length} tokens").save(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"made in {time.perf_counter() - started:.2f} s, process peak {peak:.0f} MiB")
    return path


def measure(browser: Browser, path: Path, seconds: float) -> None:
    print(f"size {path.stat().st_size / 2**20:.2f} MiB")
    browser.call("/url", {"url": "about:blank"})
    started = time.perf_counter()
    browser.call("/url", {"url": path.as_uri()})
    print(f"drawn after {browser.wait(DRAWN, started):.2f} s", flush=True)
    left, top, width, height = browser.run(
        "const box = document.querySelector('.over').getBoundingClientRect();"
        "return [box.x, box.y, box.width, box.height]"
    )

    def place(step: int) -> tuple[float, float]:
        turn = step / 15
        x, y = 0.6 + 0.3 * math.cos(turn), 0.5 + 0.3 * math.sin(turn * 1.3)
        return left + width * x, top + height * y

    def hover(name: str) -> None:
        rate, gap = moving(browser, seconds, lambda step: browser.mouse("mouseMoved", *place(step)))
        print(f"hovering {name}: {rate:.0f} frames/s, longest wait {gap:.0f} ms", flush=True)

    hover("while small pictures are drawn")
    print(f"all small pictures after {browser.wait(FILLED, started):.2f} s", flush=True)
    hover("over a head")
    browser.run("for (let n = 0; n < 3; n += 1) document.querySelector('[title=\"zoom in\"]').click()")
    browser.mouse("mousePressed", *place(0), button="left", clickCount=1)
    rate, gap = moving(
        browser, seconds, lambda step: browser.mouse("mouseMoved", *place(step), button="left", buttons=1)
    )
    browser.mouse("mouseReleased", *place(0), button="left")
    print(f"dragging: {rate:.0f} frames/s, longest wait {gap:.0f} ms", flush=True)
    started = time.perf_counter()
    browser.run("document.querySelector('.mean')?.click()")
    ready = "return !document.querySelector('.tools b').textContent.endsWith('…')"
    print(f"mean of all heads after {browser.wait(ready, started):.2f} s")
    hover("over the mean")
    heap = browser.run("return performance.memory.usedJSHeapSize") / 2**20
    print(f"page process peak {browser.peak_mib():.0f} MiB resident, script heap {heap:.0f} MiB")


if __name__ == "__main__":
    main()
