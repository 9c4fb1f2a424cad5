"""Checks that a code change changes no numbers: trains, resumes, translates and scores before and after it.

    python scripts/golden.py record FOLDER     # with the code before the change
    python scripts/golden.py check FOLDER      # with the code after it

`record` trains on the captions and on Multi30k, with one process and with two, and writes the results to
FOLDER/golden.json: hashes of the prepared corpus, of the weights and of the hypotheses, and every number in
metrics.jsonl and scores.json except time and memory. It also keeps a half-finished run and a finished run. `check`
repeats everything with the code of this checkout, resumes the half-finished runs, translates with the finished runs,
and reports every difference. The exit code is 1 if there is any.

The captions take about two minutes per case on two cores, Multi30k (from MT_DATA) about eight.
"""

import argparse
import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

ROOT = Path(__file__).resolve().parent.parent
UPDATES = {"captions": 400, "multi30k": 300}
TIMED = {"target_tokens_per_second", "memory_gib", "train/memory_gib", "train/target_tokens_per_second"}
WORDED = {"runtime"}  # descriptions whose wording may change
RETIRED = {"engine"}  # config keys that only older code wrote
SENTENCES = 100  # translated with each run


@dataclass(frozen=True)
class Case:
    """One training run: a corpus, a number of processes and a precision."""

    corpus: str
    processes: int
    precision: str

    @property
    def name(self) -> str:
        return f"{self.corpus}-{self.processes}-{self.precision}"

    def overrides(self, root: Path, run: str) -> list[str]:
        """The overrides that train this case as a run with this name."""
        updates = UPDATES[self.corpus]
        return [
            *(f"experiment={self.corpus}", f"run.root={root}", f"run.name={run}", f"train.max_updates={updates}"),
            *("train.max_minutes=null", "train.device=cpu", f"train.precision={self.precision}"),
            *(f"train.devices={self.processes}", f"train.threads={2 // self.processes}", "train.validate_every=100"),
            *("train.save_every=70", "train.validate_sentences=100", f"data.prepared_dir={root / 'prepared'}"),
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpora", default="captions,multi30k", type=lambda text: text.split(","))
    parser.add_argument("--processes", default=[1, 2], type=lambda text: [int(count) for count in text.split(",")])
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    kept = folder / "kept"
    work = folder / ("recording" if arguments.action == "record" else "checking")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    path = folder / "golden.json"
    golden = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    differences = 0
    for case in itertools.starmap(Case, itertools.product(arguments.corpora, arguments.processes, precisions())):
        began = time.monotonic()
        if arguments.action == "record":
            golden[case.name] = record(case, work, kept)
            path.write_text(json.dumps(golden, indent=1), encoding="utf-8")
        else:
            differences += check(case, work, kept, golden[case.name])
        print(f"{case.name}: {time.monotonic() - began:.0f} s", flush=True)
    if arguments.action == "check":
        print(f"{differences} differences" if differences else "no differences")
    return 1 if differences else 0


def precisions() -> list[str]:
    """fp32, and bf16 if the CPU has bf16 instructions."""
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return ["fp32", "bf16"] if fast else ["fp32"]


def record(case: Case, work: Path, kept: Path) -> dict[str, Any]:
    """Train with and without a stop, compare the results, and keep copies of the half-finished and finished runs."""
    whole = results(case, work, "whole")
    stop_half_way(case, work, "halves")
    for name in ("half", "finished"):
        shutil.rmtree(kept / f"{case.name}-{name}", ignore_errors=True)
    shutil.copytree(work / f"{case.name}-halves", kept / f"{case.name}-half")
    shutil.copytree(work / f"{case.name}-whole", kept / f"{case.name}-finished")
    if compare(f"{case.name} in two parts", whole, results(case, work, "halves")):
        raise SystemExit("the recorded code does not reproduce its own numbers")
    return whole


def check(case: Case, work: Path, kept: Path, expected: dict[str, Any]) -> int:
    """Repeat everything with this code, resume the kept runs with it, and return the number of differences."""
    differences = compare(case.name, expected, results(case, work, "whole"))
    stop_half_way(case, work, "halves")
    differences += compare(f"{case.name}, stopped and resumed", expected, results(case, work, "halves"))
    for name in ("half", "finished"):
        shutil.copytree(kept / f"{case.name}-{name}", work / f"{case.name}-old-{name}")
        differences += compare(f"{case.name}, {name} before", expected, results(case, work, f"old-{name}"))
    return differences


def results(case: Case, work: Path, run: str) -> dict[str, Any]:
    """Finish the run if necessary, translate and evaluate with it, and return all results."""
    folder = work / f"{case.name}-{run}"
    mt(work, "train", *case.overrides(work, folder.name))
    source, reference = text(case, work)
    common = [f"checkpoint={folder}", "device=cpu", f"devices={case.processes}", f"threads={2 // case.processes}"]
    translations = mt(work, "translate", *common, "decode.nbest=2", f"input={source}")
    for path in (*folder.glob("scores-files*"), *folder.glob("hypotheses/scores-files*")):
        path.unlink()  # a kept run's scores name a file in another folder
    mt(work, "evaluate", *common, f"input={source}", f"reference={reference}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    checkpoints = folder / "checkpoints"
    return {
        "prepared": {
            path.relative_to(work).as_posix(): sha256(path.read_bytes())
            for path in sorted((work / "prepared").glob(f"{case.corpus}-*/*"))
            if path.suffix in (".npy", ".model", ".txt")
        },
        "index": json.loads((checkpoints / "index.json").read_text(encoding="utf-8")),
        "weights": {
            path.parent.name: hash_of_weights(path) for path in sorted(checkpoints.glob("*/model.safetensors"))
        },
        "metrics": [without(line, TIMED) for line in lines],
        "tensorboard": tensorboard(folder / "tensorboard"),
        "scores": [scores(folder / f"{name}.json") for name in ("scores", "scores-files")],
        "hypotheses": {path.name: sha256(path.read_bytes()) for path in sorted((folder / "hypotheses").iterdir())},
        "translations": sha256(translations),
    }


def stop_half_way(case: Case, work: Path, run: str) -> None:
    """Train, and send SIGTERM after half of the updates."""
    folder = work / f"{case.name}-{run}"
    command = [sys.executable, "-m", "mt", "train", *case.overrides(work, folder.name)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    metrics = folder / "metrics.jsonl"
    while process.poll() is None:
        time.sleep(0.05)
        last = metrics.read_text(encoding="utf-8").splitlines()[-1:] if metrics.exists() else []
        if last and json.loads(last[0])["update"] >= UPDATES[case.corpus] // 2:
            process.send_signal(signal.SIGTERM)
            break
    if process.wait() != 128 + signal.SIGTERM:
        raise SystemExit(f"{folder}: exit code {process.returncode} after SIGTERM")


def mt(work: Path, *arguments: str) -> bytes:
    """Run `mt` with the code of this checkout, and return its standard output."""
    log = work / "log.txt"
    with log.open("ab") as stream:
        done = subprocess.run([sys.executable, "-m", "mt", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=stream)
    if done.returncode:
        raise SystemExit(f"mt {' '.join(arguments)}\nended with exit code {done.returncode}, see {log}")
    return done.stdout


def text(case: Case, work: Path) -> tuple[Path, Path]:
    """Write the first lines of the development set to two files, and return their paths."""
    paths = work / f"{case.corpus}.en", work / f"{case.corpus}.de"
    prepared = next((work / "prepared").glob(f"{case.corpus}-*"))
    for path, side in zip(paths, ("source", "target"), strict=True):
        lines = (prepared / f"dev.{side}.txt").read_bytes().split(b"\n")[:SENTENCES]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    return paths


def scores(path: Path) -> dict[str, Any]:
    """The scores of each test set in a file, without descriptions of the machine and paths."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: without(values, WORDED | {"input"}) | {"decode": without(values["decode"], RETIRED)}
        for name, values in found.items()
    }


def tensorboard(folder: Path) -> str:
    """A hash of every scalar in the event files of a run, in order of tag and update."""
    found = []
    for path in sorted(folder.glob("events.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag.startswith(("train/", "validation/")) and value.tag not in TIMED:
                    found.append(f"{value.tag} {event.step} {tensor_util.make_ndarray(value.tensor).tobytes().hex()}")
    return sha256("\n".join(sorted(found)).encode())


def hash_of_weights(path: Path) -> str:
    """A hash of the tensors alone, in order of their names."""
    return sha256(
        b"".join(name.encode() + np.ascontiguousarray(t).tobytes() for name, t in sorted(load_file(path).items()))
    )


def without(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def compare(name: str, expected: Any, found: Any, place: str = "") -> int:
    """Print every difference between two results, and return their number."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = sorted(expected.keys() | found.keys())
        return sum(compare(name, expected.get(key), found.get(key), f"{place}/{key}") for key in keys)
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return sum(compare(name, one, other, f"{place}/{number}") for number, (one, other) in pairs)
    if expected == found:
        return 0
    print(f"{name}: {place}: expected {expected!r}, found {found!r}"[:500], flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
