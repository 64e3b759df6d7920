"""Training and translating beside JoeyNMT 2.3.0: same text, same sizes, same threads, in turns.

    W="--data multi30k --work work"      # the raw text, gzipped; a folder for all that is made
    python benchmarks/translation.py setup $W                  # once: JoeyNMT with torch, its vocabulary
    python benchmarks/translation.py train-peer $W --minutes 16    # at most; of each architecture
    python benchmarks/translation.py train-ours $W --minutes 16
    python benchmarks/translation.py speed $W                  # training in turns, on an idle machine
    python benchmarks/translation.py decode $W                 # translating in turns, likewise
    python benchmarks/translation.py report $W --docs docs
    python benchmarks/translation.py all $W --docs docs        # all of it in this order

Each step keeps what it found in the work folder and can be run again on its own; what is trained already is
not trained again. `train-ours` keeps a model every half minute and stops at the first that comes within 1
BLEU of JoeyNMT's: the one whose decoding is compared. Training speed is measured apart from that, with fresh
models: each side's own loop, a fixed number of updates a turn, real target tokens per second (end marks
counted, padding not). Decoding counts tokenising and detokenising but not the loading of the model. Memory is
the peak resident size of the process. "others" is how many cores other programs kept busy meanwhile: above
0.1, measure again.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headlights.bench.contestant import Place
from headlights.bench.report import about
from headlights.bench.running import Setting
from headlights.translation.evaluation import bleu
from translation_report import (
    OURS,
    PEER,
    WITHIN,
    choose,
    decode_rows,
    lengths,
    speed_rows,
    tables,
    write_page,
)
from translation_setup import (
    LANGUAGES,
    MODELS,
    PEER_VERSION,
    ROOT,
    SPLITS,
    VARIANTS,
    Places,
    our_recipe,
    set_up,
)
from translation_turns import Worker

MOST_MINUTES = 45.0
SHORT = f"{OURS}, bfloat16"
TEST = SPLITS[-1]
MEASURED = ("train-peer", "train-ours", "speed", "decode")


def setup(places: Places, _options: argparse.Namespace) -> None:
    """Unpack the text, install JoeyNMT and learn its vocabulary."""
    set_up(places)


def train_peer(places: Places, options: argparse.Namespace) -> None:
    """JoeyNMT for some minutes, and how good it is then."""
    for model in options.models:
        path = places.of(model, "train-peer.json")
        if not path.exists():
            job = _peer_job(places, model, "train", "joeynmt", seconds=60 * options.minutes)
            with places.peer(job, threads=options.threads, log=f"{model}-train-peer") as worker:
                _write(path, {**_follow(worker), "threads": options.threads})
        found = _read(path)
        if "bleu" not in found:
            print(f"{PEER} {model}: translating the test set", flush=True)
            job = _peer_job(places, model, "decode", "joeynmt", lines=len(_lines(places, 0)))
            with places.peer(job, threads=options.threads, log=f"{model}-test-peer") as worker:
                worker.hear()
                found["bleu"] = bleu(worker.turn()["hypotheses"], _lines(places, 1))
            _write(path, found)
        speed = f"{found['tokens'] / found['seconds']:,.0f} target tokens/s"
        print(
            f"{PEER} {model}: {found['updates']} updates in {found['seconds'] / 60:.1f} min, {speed}, "
            f"peak {found['peak_mib']:,.0f} MiB, BLEU {found['bleu']:.2f}; "
            f"to train it again, delete {path}",
            flush=True,
        )


def _follow(worker: Worker) -> dict[str, Any]:
    """Print how JoeyNMT's training goes, until it is done."""
    last = {"updates": 0, "tokens": 0, "seconds": 0.0}
    while not (found := worker.hear()).get("done"):
        count, seconds = (found[key] - last[key] for key in ("tokens", "seconds"))
        speed = f"{count / max(seconds, 1e-9):,.0f} target tokens/s"
        print(f"  {found['seconds']:6.0f} s  {found['updates']:6} updates  {speed}", flush=True)
        last = found
    return {**last, **found}


def train_ours(places: Places, options: argparse.Namespace) -> None:
    """Ours until it is as good, keeping models on the way."""
    for model in options.models:
        wanted = options.until_bleu
        if wanted is None and places.of(model, "train-peer.json").exists():
            wanted = _read(places.of(model, "train-peer.json")).get("bleu")
        scores = [each["bleu"] for each in _snapshots(places, model) if each["bleu"] is not None]
        if wanted is not None and any(score >= wanted - WITHIN for score in scores):
            folder = places.work / model
            print(f"{OURS} {model}: trained already; to do it again, delete run and kept in {folder}")
            continue
        validations = max(1, round(60 * options.minutes / options.every))
        job = {
            "work": "train",
            "recipe": our_recipe(places, model, max_minutes=options.minutes, validations=validations),
            "out": str(places.of(model, "run")),
            "kept": str(places.of(model, "kept")),
            "sources": str(places.text(TEST, LANGUAGES[0])),
            "references": str(places.text(TEST, LANGUAGES[1])),
            "until_bleu": wanted,
        }
        goal = f"for {options.minutes:g} minutes" if wanted is None else f"until BLEU {wanted - WITHIN:.2f}"
        print(f"{OURS} {model}: {goal}", flush=True)
        with places.ours(job, threads=options.threads, log=f"{model}-train-ours") as worker:
            while not (found := worker.hear()).get("done"):
                tested = "–" if found["bleu"] is None else f"{found['bleu']:.2f}"
                print(
                    f"  {found['seconds']:6.0f} s  {found['update']:6} updates  validation BLEU "
                    f"{found['validation_bleu']:.2f}, test BLEU {tested}",
                    flush=True,
                )
        peak = {"peak_mib": found["peak_mib"], "threads": options.threads}
        _write(places.of(model, "train-ours.json"), peak)


def speed(places: Places, options: argparse.Namespace) -> None:
    """Train fresh models in turns."""
    for model in options.models:
        turn = {"warm_up": options.warm_up, "updates": options.updates}
        name, changes = VARIANTS[model]
        recipe = our_recipe(places, model, max_updates=10**6, validations=1)
        recipes = {OURS: recipe}
        if options.variants:
            recipes[name] = {**recipe, "model": {**recipe["model"], **changes}}
        scratch = places.of(model, "scratch")
        shutil.rmtree(scratch, ignore_errors=True)
        peer = _peer_job(places, model, "speed", "scratch/joeynmt", **turn)
        starts: dict[str, Callable[..., Worker]] = {PEER: partial(places.peer, peer, threads=options.threads)}
        for number, (who, content) in enumerate(recipes.items()):
            ours = {"work": "speed", "recipe": content, "out": str(scratch / f"ours{number}"), **turn}
            starts[who] = partial(places.ours, ours, threads=options.threads)
        found = _race(starts, options, "tokens", f"{model}-speed")
        shutil.rmtree(scratch, ignore_errors=True)
        _write(places.of(model, "speed.json"), found)
        _print_rows(speed_rows(model, found))


def decode(places: Places, options: argparse.Namespace) -> None:
    """Translate the test set in turns, with models of one quality."""
    for model in options.models:
        theirs = places.of(model, "train-peer.json")
        if "bleu" not in (trained := _read(theirs) if theirs.exists() else {}):
            raise SystemExit(f"{theirs} is missing or without BLEU; first run: train-peer {model}")
        try:
            chosen, note = choose(_snapshots(places, model), trained["bleu"])
        except ValueError as error:
            raise SystemExit(f"{model}: {error}: train-ours {model}") from None
        ours_is = f"ours after update {chosen['update']} {chosen['bleu']:.2f}"
        print(f"{model}: {PEER} BLEU {trained['bleu']:.2f}, {ours_is} {note}".rstrip(), flush=True)
        sources, references = (_lines(places, side)[: options.lines] for side in (0, 1))
        ours = {
            "work": "decode",
            "model": str(places.of(model, "kept") / f"{chosen['update']:06}"),
            "sources": str(places.text(TEST, LANGUAGES[0])),
            "lines": len(sources),
        }
        peer = _peer_job(places, model, "decode", "joeynmt", lines=len(sources))
        starts: dict[str, Callable[..., Worker]] = {
            PEER: partial(places.peer, peer, threads=options.threads),
            OURS: partial(places.ours, ours, threads=options.threads),
        }
        if options.variants:
            short = {**ours, "dtype": "bfloat16"}
            starts[SHORT] = partial(places.ours, short, threads=options.threads)
        found = _race(starts, options, "sentences", f"{model}-decode")
        found[PEER] |= {"trained": trained, "note": ""}
        for name in starts.keys() - {PEER}:
            own = {"updates": chosen["update"], "seconds": chosen["seconds"]}
            found[name] |= {"trained": own, "note": note}
        for who, each in found.items():
            texts = each.pop("hypotheses")
            each |= {"bleu": bleu(texts, references), "words": lengths(texts, references)}
            words = each["words"]
            print(
                f"  {who:21} BLEU {each['bleu']:.2f}, words a line {words['mean']:.1f}, "
                f"most {words['most']}, {words['ratio']:.2f} of the references'",
                flush=True,
            )
        _write(places.of(model, "decode.json"), found)
        _print_rows(decode_rows(model, found))


def _race(
    starts: Mapping[str, Callable[..., Worker]], options: argparse.Namespace, of: str, log: str
) -> dict[str, dict[str, Any]]:
    """Start the workers, let each warm up, and give them their turns, every other round in reverse."""
    found: dict[str, dict[str, Any]] = {}
    about_all = {"threads": options.threads, "commit": _commit()}
    with ExitStack() as stack:
        workers = {}
        for number, (who, start) in enumerate(starts.items()):
            workers[who] = stack.enter_context(start(log=f"{log}-{number}"))
            found[who] = {**workers[who].hear(), **about_all, "rounds": []}
        for turn in range(options.rounds):
            for who in list(workers)[:: -1 if turn % 2 else 1]:
                came = workers[who].turn()
                if "hypotheses" in came:
                    found[who]["hypotheses"] = came.pop("hypotheses")
                    came["sentences"] = len(found[who]["hypotheses"])
                found[who]["peak_mib"] = came.pop("peak_mib")
                found[who]["rounds"].append(came)
                rate = came[of] / came["seconds"]
                print(f"  {who:34} {rate:8,.1f} {of}/s   others {came['others']:.2f}", flush=True)
    return found


def report(places: Places, options: argparse.Namespace) -> None:
    """Everything that was measured, as JSON and as Markdown."""
    results: dict[str, Any] = {}
    for model in MODELS:
        steps = {step: places.of(model, f"{step}.json") for step in MEASURED}
        if found := {step: _read(path) for step, path in steps.items() if path.exists()}:
            results[model] = found
    if not any({"speed", "decode"} & found.keys() for found in results.values()):
        raise SystemExit(f"nothing was measured in {places.work} yet; run: speed, or decode")
    results["about"] = _about(results)
    _write(places.work / "results.json", results)
    text = tables(results)
    (places.work / "results.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if options.docs is not None:
        try:
            print(f"wrote {write_page(options.docs, text)}")
        except ValueError as error:
            raise SystemExit(str(error)) from None


def everything(places: Places, options: argparse.Namespace) -> None:
    """All of these, in this order."""
    for step in (setup, train_peer, train_ours, speed, decode, report):
        step(places, options)


def _about(results: Mapping[str, Any]) -> str:
    """The machine, the versions and the turns, in a sentence or two."""
    races = {"training": _raced(results, "speed"), "translating": _raced(results, "decode")}
    raced = [contestant for each in races.values() for contestant in each]
    threads = sorted({each["threads"] for each in raced})
    known = about(Setting(Place(torch.device("cpu"), torch.float32), threads[0]))
    versions = known["versions"]
    commits = ", ".join(
        f"{work} at commit `{'/'.join(sorted({contestant['commit'] for contestant in each}))}`"
        for work, each in races.items()
        if each
    )
    others = max(turn["others"] for each in raced for turn in each["rounds"])
    count = f"{'/'.join(map(str, threads))} thread{'' if threads == [1] else 's'}"
    turns = "/".join(map(str, sorted({len(each["rounds"]) for each in raced})))
    return (
        f"{known['machine']}, {count}; headlights {versions['headlights']} "
        f"({commits}) and {PEER} {PEER_VERSION}, both with torch {versions['torch']}, "
        f"Python {versions['Python']}. Medians of {turns} turns, lowest and highest in brackets; other "
        f"programs kept at most {others:.2f} cores busy meanwhile."
    )


def _raced(results: Mapping[str, Any], step: str) -> list[dict[str, Any]]:
    return [contestant for each in results.values() for contestant in each.get(step, {}).values()]


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def _peer_job(places: Places, model: str, work: str, folder: str, **more: Any) -> dict[str, Any]:
    config, out = places.of(model, "joeynmt.yaml"), places.of(model, folder)
    return {"work": work, "config": str(config), "model_dir": str(out), **more}


def _snapshots(places: Places, model: str) -> list[dict[str, Any]]:
    return [_read(path) for path in sorted(places.of(model, "kept").glob("*/test.json"))]


def _lines(places: Places, side: int) -> list[str]:
    with places.text(TEST, LANGUAGES[side]).open(encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    for work, ours, theirs, ratio, goal, reached in rows:
        print(f"{work}: {ours} against {theirs}: {ratio}  {goal} {reached}", flush=True)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _write(path: Path, found: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _model(text: str) -> str:
    if text not in MODELS:
        raise argparse.ArgumentTypeError(f"expected {' or '.join(MODELS)}, got {text!r}")
    return text


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"expected more than 0 and at most {MOST_MINUTES:g}, got {text}")
    return value


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    steps = parser.add_subparsers(required=True, metavar="STEP")

    def step(name: str, work: Callable[[Places, argparse.Namespace], None], *groups: str) -> None:
        each = steps.add_parser(name, help=(work.__doc__ or "").strip())
        each.set_defaults(work_of=work)
        each.add_argument("--data", type=Path, required=True, help="folder of Multi30k's raw text, gzipped")
        each.add_argument("--work", type=Path, required=True, help="folder of everything that is made")
        if "models" in groups:
            each.add_argument("models", nargs="*", metavar="{rnn,transformer}", type=_model)
        if "threads" in groups:
            each.add_argument("--threads", type=int, default=2)
        if "minutes" in groups:
            each.add_argument("--minutes", type=_minutes, default=16.0, help="at most; of each training")
        if "until" in groups:
            each.add_argument("--until-bleu", type=float, help="default: that of JoeyNMT's model")
            each.add_argument("--every", type=float, default=30.0, help="seconds between kept models")
        if "rounds" in groups:
            each.add_argument("--rounds", type=int, default=3, help="turns of each")
            each.add_argument(
                "--no-variants", dest="variants", action="store_false", help="ours as JoeyNMT's alone"
            )
        if "updates" in groups:
            each.add_argument("--updates", type=int, default=12, help="of a turn")
            each.add_argument("--warm-up", type=int, default=5, help="updates before the first turn")
        if "lines" in groups:
            each.add_argument("--lines", type=int, default=1000, help="of the test set")
        if "docs" in groups:
            each.add_argument("--docs", type=Path, help="folder of the page to write the tables into")

    step("setup", setup)
    step("train-peer", train_peer, "models", "threads", "minutes")
    step("train-ours", train_ours, "models", "threads", "minutes", "until")
    step("speed", speed, "models", "threads", "rounds", "updates")
    step("decode", decode, "models", "threads", "rounds", "lines")
    step("report", report, "docs")
    every = ("models", "threads", "minutes", "until", "rounds", "updates", "lines", "docs")
    step("all", everything, *every)
    return parser


def main() -> None:
    options = _parser().parse_args()
    options.models = getattr(options, "models", None) or list(MODELS)
    places = Places(options.data.absolute(), options.work.absolute())
    options.work_of(places, options)


if __name__ == "__main__":
    main()
