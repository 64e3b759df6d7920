"""What it costs to look into a large map: `headlights view` over 4,096 tokens, and BertViz' `model_view`.

    python benchmarks/view_models.py --length 4096 --peer /folder/that/holds/bertviz

Two random models of 12 layers of 12 heads, one BERT-style and one GPT-2-style, read a text of the built-in
corpus, a word a token. Each program runs in a process of its own; printed are its seconds, its peak memory
and the size of its page; then how long headless Chromium takes from the page's address to the second frame
after loading, and the most memory that a process of it held. BertViz keeps every weight, so shorter texts are
tried until one fits within `--limit`; without `--peer` it is left out. Its page takes scripts from the
network: offline it draws nothing, and what is timed is the reading of it.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from headlights.translation.corpus import grammar

LAYERS, HEADS, WIDTH = 12, 12, 96
KINDS = ("BERT-style", "GPT-2-style")
SHORTEST = 128
PATIENCE = 600  # seconds for a program, and for the browser with its page
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,1200",
)
TWO_FRAMES = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"


class Run(NamedTuple):
    """What a program cost."""

    status: int
    seconds: float
    mib: float
    words: str


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--length", type=int, default=4096, help="tokens of the text")
    parser.add_argument("--peer", type=Path, help="a folder for PYTHONPATH that holds bertviz and its needs")
    parser.add_argument("--limit", type=float, default=8, help="GiB of address space that BertViz may take")
    parser.add_argument("--run-peer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_peer:
        run_peer(*options.run_peer)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = text(options.length)
        (folder / "text").write_text(" ".join(words), encoding="utf-8")
        print(f"{LAYERS} layers of {HEADS} heads")
        print(f"{'':42}{'seconds':>9}{'MiB':>8}{'page MB':>9}{'opens in s':>12}{'browser MiB':>13}")
        for kind in KINDS:
            make_model(kind, folder / kind, words)
            page = folder / f"{kind}.html"
            arguments = ["-m", "headlights", "view", folder / kind, "--text-file", folder / "text"]
            show(f"headlights, {kind}, {len(words)} tokens", run([*arguments, "--html", page]), page)
            length = len(words) if options.peer else 0
            while length >= SHORTEST:
                page = folder / "peer.html"
                arguments = [__file__, "--run-peer", folder / kind, folder / "text", length, page]
                result = run(arguments, path=options.peer, limit=options.limit)
                show(f"BertViz, {kind}, {length} tokens", result, page)
                length = 0 if result.status == 0 else length // 2


def text(length: int) -> list[str]:
    """That many words of the built-in corpus."""
    pairs = grammar.generate(length // 3 + 1, seed=1)
    return [word for pair in pairs for word in pair.source.split()][:length]


def make_model(kind: str, folder: Path, words: Sequence[str]) -> None:
    """A random model for texts of `words`, and a tokenizer that makes each word a token, in a folder."""
    transformers: Any = import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator([" ".join(words)], trainers.WordLevelTrainer(special_tokens=["[UNK]"]))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(
        folder
    )
    sizes = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": len(words),
    }
    torch.manual_seed(1)
    if kind == "BERT-style":
        config = transformers.BertConfig(intermediate_size=2 * WIDTH, **sizes)
    else:
        config = transformers.GPT2Config(**sizes)
    model = transformers.AutoModel.from_config(config)
    for parameter in model.parameters():  # as initialised, all keys weigh nearly the same
        parameter.data.mul_(3)
    model.save_pretrained(folder)


def run(arguments: Sequence[object], *, path: Path | None = None, limit: float | None = None) -> Run:
    """Run Python with these arguments; `limit` is in GiB, `path` goes in front of PYTHONPATH."""
    paths = [str(path)] if path else []
    paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    bound = "unlimited" if limit is None else str(int(limit * 2**20))  # KiB
    shell = ["timeout", str(PATIENCE), "sh", "-c", f'ulimit -v {bound}; exec "$@"', "sh"]
    command = [*shell, sys.executable, *map(str, arguments)]
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)  # of the program, which `timeout` has waited for
        seconds = time.perf_counter() - started
        errors.seek(0)
        lines = errors.read().decode().strip().splitlines() or [""]
    return Run(os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss / 1024, lines[-1])


def show(name: str, result: Run, page: Path) -> None:
    """Print a row: what the program cost, and what its page costs in a browser."""
    cost = f"{name:42}{result.seconds:9.1f}{result.mib:8.0f}"
    if result.status != 0:
        print(f"{cost}  failed: {result.words or f'status {result.status}'}", flush=True)
        return
    opened = open_page(page)
    browser = "  no chromedriver" if opened is None else f"{opened[0]:12.1f}{opened[1]:13.0f}"
    print(f"{cost}{page.stat().st_size / 1e6:9.1f}{browser}", flush=True)


def run_peer(folder: str, text_file: str, length: str, page: str) -> None:
    """What BertViz' users do: a forward pass that returns all weights, and `model_view` of them."""
    transformers: Any = import_module("transformers")
    model_view = import_module("bertviz").model_view
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = tokenizer(Path(text_file).read_text("utf-8"), return_tensors="pt")["input_ids"][:, : int(length)]
    with torch.no_grad():
        attention = model(input_ids=ids, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(ids[0])
    Path(page).write_text(model_view(attention, tokens, html_action="return").data, encoding="utf-8")


def open_page(page: Path) -> tuple[float, float] | None:
    """Seconds to open a page in headless Chromium, and MiB of its largest process; None without one."""
    chrome, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not chrome or not driver:
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with tempfile.TemporaryDirectory() as profile:
            address = f"http://127.0.0.1:{port}/session"
            flags = [*FLAGS, f"--user-data-dir={profile}"]
            wanted = {"goog:chromeOptions": {"binary": chrome, "args": flags}}
            session = ask(address, {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            address = f"{address}/{session}"
            patience = 1000 * PATIENCE
            ask(f"{address}/timeouts", {"pageLoad": patience, "script": patience})
            started = time.perf_counter()
            ask(f"{address}/url", {"url": page.absolute().as_uri()})
            ask(f"{address}/execute/async", {"script": TWO_FRAMES, "args": []})
            seconds = time.perf_counter() - started
            mib = max(peak_mib(number) for number in descendants(process.pid))
            ask(address, method="DELETE")
            return seconds, mib
    finally:
        process.terminate()
        process.wait(10)


def ask(address: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
    """One WebDriver call; a driver that is still starting is asked again."""
    data = json.dumps(body or {}).encode() if method == "POST" else None
    request = Request(address, data, {"Content-Type": "application/json"}, method=method)
    for _ in range(100):
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise RuntimeError(f"chromedriver: {error.read().decode()[:300]}") from error
        except URLError:
            time.sleep(0.1)
    raise RuntimeError("chromedriver does not answer")


def descendants(ancestor: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [ancestor]
    for number in found:
        found += children.get(number, [])
    return found


def peak_mib(process: int) -> float:
    """The most memory that a process has held."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
