"""Compares the training and decoding speed of mt with that of each installed peer.

python scripts/benchmark.py [--install] [--quick] [--json FILE] [--rounds N] [--only mt,marian] [--sizes tiny,base]

All tools use Multi30k English to German and the same vocabulary, model and number of threads. Each peer has its own
virtual environment under --work; `--install` creates the missing ones. Run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "benchmarking"))

import tools
from tools import PEERS, TRAINERS, Bench
from workload import Numbers, make_workload

from mt.runtime.process import usable_cores

Rounds = dict[str, list[Numbers]]  # {tool: numbers of each round}
Report = dict[str, dict[str, Numbers]]  # {size: {tool: numbers}}
RATE = "target_tokens_per_second"
DECODING_UPDATES = 500  # before decoding: enough for sentences of normal length


def main() -> None:
    arguments = _arguments()
    work = make_workload(arguments.work / "work", arguments.raw)
    bench = Bench(work, arguments.raw, arguments.work / "peers", arguments.threads)
    for peer in PEERS:
        if arguments.install and not bench.installed(peer):
            print(f"installing {peer}", flush=True)
            bench.install(peer)
    chosen = [peer for peer in PEERS if bench.installed(peer) and peer in arguments.only]
    print(f"peers: {', '.join(chosen) or 'none installed (see --install)'}", flush=True)
    limit = {precision: tools.limit(bench, precision) for precision in ("fp32", "bf16")}
    for precision, numbers in limit.items():
        print(f"matrix products in {precision}: {numbers['gflops']:,.0f} GFLOP/s", flush=True)
    train: Report = {}
    decode: Report = {}
    for size in arguments.sizes:
        fast_bf16 = limit["bf16"]["gflops"] > limit["fp32"]["gflops"]
        train[size] = _summarize(_training(bench, size, chosen, fast_bf16, arguments))
        _print(f"training, {size}", train[size], limit)
    if not arguments.quick:
        decode["tiny"] = _summarize(_decoding(bench, chosen, arguments.rounds))
        _print("decoding test_2016_flickr, tiny, beam 5", decode["tiny"], {})
    if arguments.json:
        report = {"train": train, "decode": decode, "limit": limit}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare mt with its peers on this machine.")
    data = os.environ.get("MT_DATA", "data/raw")
    parser.add_argument("--work", type=Path, default=Path("outputs/benchmark"), help="folder for peers and models")
    parser.add_argument("--raw", type=Path, default=Path(data) / "multi30k", help="folder of Multi30k's .gz files")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each tool")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--sizes", type=_names, default=["tiny", "base"], help="tiny, small, base; empty for none")
    parser.add_argument("--only", type=_names, default=list(PEERS), help="peers to compare with")
    parser.add_argument("--install", action="store_true", help="create missing environments (gigabytes)")
    parser.add_argument("--quick", action="store_true", help="only two short training rounds of the tiny model")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    arguments.work, arguments.raw = arguments.work.absolute(), arguments.raw.absolute()
    if arguments.quick:
        arguments.rounds, arguments.sizes = 2, ["tiny"]
    return arguments


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _training(bench: Bench, size: str, peers: list[str], fast_bf16: bool, arguments: argparse.Namespace) -> Rounds:
    """Each tool's training speed in each round. The tools alternate, so that a slow phase affects all of them."""
    seconds, reports = (15, 2) if arguments.quick else (30, 3)
    slow = size == "base"
    turns: dict[str, Callable[[], Numbers]] = {"mt": partial(tools.train_mt, bench, size, seconds)}
    if fast_bf16:
        turns["mt bf16"] = partial(tools.train_mt, bench, size, seconds, "bf16")
    for name, trainer in TRAINERS.items():
        if name in peers and not (slow and name == "joeynmt"):  # too slow to wait for
            turns[name] = partial(trainer, bench, size, reports, **({"updates": 2} if slow else {}))
    return _rounds(turns, arguments.rounds)


def _rounds(turns: dict[str, Callable[[], Numbers]], rounds: int) -> Rounds:
    found: Rounds = {name: [] for name in turns}
    for number in range(rounds):
        for name, turn in turns.items():
            numbers = turn()
            found[name].append(numbers)
            print(f"  round {number + 1}, {name}: {numbers[RATE]:,.0f} target tokens/s", flush=True)
    return found


def _decoding(bench: Bench, peers: list[str], rounds: int) -> Rounds:
    """Each tool's decoding speed with mt's tiny model. Marian trains its own model for as many updates."""
    run = _own_run(bench)
    turns: dict[str, Callable[[], Numbers]] = {
        "mt": partial(tools.decode_mt, bench, run, "torch"),
        "mt, ctranslate2": partial(tools.decode_mt, bench, run, "ctranslate2"),
    }
    if "ctranslate2" in peers:
        export = next((run / "exports").glob("*-float32"))
        turns["ctranslate2"] = partial(tools.decode_ctranslate2, bench, export)
    if "marian" in peers:
        if not (bench.work.folder / "marian-tiny.npz").exists():
            tools.train_marian(bench, "tiny", 1, DECODING_UPDATES // 2, model="marian")
        turns["marian"] = partial(tools.decode_marian, bench, "marian-tiny.npz")
    if "joeynmt" in peers:
        turns["joeynmt"] = partial(tools.decode_joeynmt, bench, run)
    return _rounds(turns, rounds)


def _own_run(bench: Bench) -> Path:
    """The folder of an mt run of DECODING_UPDATES updates and its export; both are made if missing."""
    root = bench.work.folder / "runs"
    run = root / "mt"
    common = [sys.executable, "-m", "mt"]
    options = [f"run.root={root}", "run.name=mt", f"tokenizer.model={bench.work.model}", "model=tiny"]
    options += [f"data.raw_dir={bench.raw}"]
    options += [f"data.prepared_dir={bench.work.folder}/prepared", f"train.max_updates={DECODING_UPDATES}"]
    if not (run / "scores.json").exists():
        subprocess.run([*common, "train", *options], check=True)
    if not list(run.glob("exports/*-float32")):
        subprocess.run([*common, "export", f"checkpoint={run}"], check=True)
    return run


def _summarize(rounds: Rounds) -> dict[str, Numbers]:
    """The medians over the rounds, and the relative spread of the speeds."""
    summary = {}
    for name, found in rounds.items():
        summary[name] = {key: statistics.median(numbers[key] for numbers in found) for key in found[0]}
        speeds = [numbers[RATE] for numbers in found]
        summary[name]["spread"] = (max(speeds) - min(speeds)) / statistics.median(speeds)
    return summary


def _print(title: str, summary: dict[str, Numbers], limit: dict[str, Numbers]) -> None:
    print(f"\n{title}\n")
    print("| | target tokens/s | spread | mt is faster by | sentences/s | peak memory, MiB | of the matrix limit |")
    print("|---|---|---|---|---|---|---|")
    for name, numbers in summary.items():
        ratio = summary["mt"][RATE] / numbers[RATE]
        sentences = f"{numbers['sentences_per_second']:,.0f}" if "sentences_per_second" in numbers else ""
        most = limit.get("bf16" if "bf16" in name else "fp32")
        share = f"{numbers['gflops'] / most['gflops']:.0%}" if most and "gflops" in numbers else ""
        print(
            f"| {name} | {numbers[RATE]:,.0f} | {numbers['spread']:.0%} | {ratio:.2f} | {sentences}"
            f" | {numbers['peak_memory_mib']:,.0f} | {share} |"
        )
    print(flush=True)


if __name__ == "__main__":
    main()
