"""Kills trainings at random moments, resumes them, and checks that nothing is lost.

    python scripts/crash_campaign.py --kills 200

A small run on a made-up language is killed (SIGKILL, SIGTERM, SIGINT) again and again, each time followed by the
same command, until it is finished; then the next one. Before some restarts a file of the newest checkpoint is cut
short. Every restart must load, and the final weights and logged numbers must be those of a run that nobody
disturbed, to the bit. With --full-disk (root only, for mounting) a run also fills up a small file system.
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TRAINING = [
    *("data=files", "tokenizer.vocab_size=330", "model.d_model=32", "model.d_ff=64", "model.heads=2"),
    *("model.dropout=0.1", "model.encoder_layers=1", "model.decoder_layers=1", "optim.warmup_steps=20"),
    *("decode=greedy", "decode.max_length_a=0", "decode.max_length_b=10", "train.update_tokens=400"),
    *("train.save_every=4", "train.validate_every=20", "train.log_every=3"),
    *("train.average=2", "train.threads=1", "train.device=cpu", "train.precision=fp32"),
]
TIMED = {"target_tokens_per_second", "memory_gib"}
SLOWEST_EXIT = 10.0  # seconds from a signal that asks


def main() -> int:
    """Run the campaign; 0 when nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--updates", type=int, default=200, help="length of a run")
    parser.add_argument("--two-processes", type=float, default=0.1, help="share of runs on two processes")
    parser.add_argument("--damage", type=float, default=0.15, help="share of the restarts before which a file is cut")
    parser.add_argument("--full-disk", action="store_true", help="let a run fill up a file system (needs root)")
    parser.add_argument("--forked", action="store_true", help="fork instead of starting Python anew: less time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("outputs/crash_campaign"))
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has it ignored, also below
    if options.forked:
        preload()
    generator = random.Random(options.seed)
    if options.folder.exists():
        raise SystemExit(f"{options.folder} exists: remove it, or give another --folder")
    training = [*TRAINING, f"train.max_updates={options.updates}"]
    campaign = Campaign(options.folder.absolute(), training, generator, options.damage, options.forked)
    began = time.monotonic()
    number = 0
    while sum(campaign.kills.values()) < options.kills:
        campaign.run(f"run-{number}", 2 if generator.random() < options.two_processes else 1, options.kills)
        number += 1
    if options.full_disk:
        campaign.fill_a_disk()
    kills = ", ".join(f"{count} {name}" for name, count in sorted(campaign.kills.items()))
    print(
        f"{sum(campaign.kills.values())} kills ({kills}) in {number} runs, {campaign.damaged} checkpoints cut short,"
        f" slowest exit after a signal that asks {campaign.slowest:.1f} s, {time.monotonic() - began:.0f} s in all:"
        " every run ended with the weights and numbers of the undisturbed one"
    )
    return 0


class Campaign:
    """What is known over all runs."""

    def __init__(
        self, folder: Path, training: list[str], generator: random.Random, damage: float, forked: bool
    ) -> None:
        self.folder, self.generator, self.damage, self.forked = folder, generator, damage, forked
        folder.mkdir(parents=True)
        self.training = [*training, *write_corpus(folder), f"data.prepared_dir={folder / 'prepared'}"]
        self.kills: Counter[str] = Counter()
        self.damaged = 0
        self.slowest = 0.0
        self.expected: dict[int, tuple[bytes, list[object]]] = {}  # by number of processes
        self.seconds: dict[int, float] = {}  # of an undisturbed run

    def run(self, name: str, processes: int, most_kills: int) -> None:
        """One training, killed until the number of kills is reached or it is through."""
        if processes not in self.expected:
            began = time.monotonic()
            self._start(f"undisturbed-{processes}", processes).finish(0)
            self.seconds[processes] = time.monotonic() - began
            self.expected[processes] = self._result(f"undisturbed-{processes}")
        kills = 0
        while sum(self.kills.values()) < most_kills and self._kill_once(name, processes):
            kills += 1
            if self.generator.random() < self.damage:
                self._cut_a_file(name)
        self._start(name, processes).finish(0)
        if self._result(name) != self.expected[processes]:
            raise SystemExit(f"{self.folder / name} ended with other weights or numbers than the undisturbed run")
        print(f"{name}: {processes} process(es), {kills} kills, the same weights and numbers", flush=True)
        shutil.rmtree(self.folder / name)

    def fill_a_disk(self) -> None:
        """A run on a file system that is too small says so; with more room the same command goes on."""
        place = self.folder / "small"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", place], check=True)
        try:
            full = self._start("full", 1, place).finish(2)
            if "cannot save" not in full or "No space left" not in full:
                raise SystemExit(f"the full disk was not named: {full[-500:]}")
            subprocess.run(["mount", "-o", "remount,size=100m", place], check=True)
            if "resuming from update-" not in self._start("full", 1, place).finish(0):
                raise SystemExit("the run on the full disk began again")
            if self._result("full", place) != self.expected[1]:
                raise SystemExit("the run on the full disk ended with other weights or numbers")
        finally:
            subprocess.run(["umount", place], check=True)
        print("full disk: told, and gone on from", flush=True)

    def _kill_once(self, name: str, processes: int) -> bool:
        """Start, wait a random while, kill; False where the run was finished before that."""
        process = self._start(name, processes)
        by_event = self.generator.random() < 0.5  # half of them just after something was saved
        if by_event:
            alive = process.wait_for_saves(self.generator.randint(1, 8))
            time.sleep(self.generator.uniform(0, 0.1))
        else:
            alive = process.wait(self.generator.uniform(0, self.seconds[processes]))
        if not alive or process.process.poll() is not None:
            process.finish(0)
            return False
        number = self.generator.choice([*[signal.SIGKILL] * 6, *[signal.SIGTERM] * 3, signal.SIGINT])
        if number == signal.SIGINT and not process.text():
            number = signal.SIGKILL  # an interpreter that is interrupted while it starts has errors of its own
        began = time.monotonic()
        process.process.send_signal(number)
        code = process.process.wait(60)
        if number != signal.SIGKILL:
            self.slowest = max(self.slowest, time.monotonic() - began)
            if self.slowest > SLOWEST_EXIT:
                raise SystemExit(f"{name}: {self.slowest:.1f} seconds from signal {number} to the end")
        if code == 0:
            return False  # it had ended before
        if code not in (-number, 128 + number):
            raise SystemExit(f"{name}: exit code {code} after signal {number}:\n{process.text()[-3000:]}")
        self.kills[signal.Signals(number).name] += 1
        return True

    def _cut_a_file(self, name: str) -> None:
        checkpoints = sorted((self.folder / name / "checkpoints").glob("update-*"))
        if len(checkpoints) < 2:
            return
        file = self.generator.choice([path for path in sorted(checkpoints[-1].iterdir()) if path.stat().st_size])
        with file.open("r+b") as stream:
            stream.truncate(self.generator.randrange(file.stat().st_size))
        self.damaged += 1

    def _start(self, name: str, processes: int, root: Path | None = None) -> "Process":
        own = [f"run.root={root or self.folder}", f"run.name={name}", f"train.devices={processes}"]
        return Process([*self.training, *own], self.folder / f"{name}.log", self.forked and processes == 1)

    def _result(self, name: str, root: Path | None = None) -> tuple[bytes, list[object]]:
        """Final weights, and all logged numbers but those that measure time and memory."""
        run = (root or self.folder) / name
        last = json.loads((run / "checkpoints" / "index.json").read_text())["last"]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        numbers: list[object] = [{key: value for key, value in line.items() if key not in TIMED} for line in lines]
        return (run / "checkpoints" / last / "model.safetensors").read_bytes(), numbers


class Process:
    """A training under way; what it says goes to a file."""

    def __init__(self, arguments: list[str], log: Path, forked: bool) -> None:
        self.log = log
        log.write_bytes(b"")
        if forked:
            self.process: Forked | subprocess.Popen[bytes] = Forked(["train", *arguments], log)
        else:
            command = [sys.executable, "-m", "mt", "train", *arguments]
            with log.open("wb") as stream:
                self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stream)

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until it has ended; whether it is alive."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.process.poll() is None

    def wait_for_saves(self, count: int) -> bool:
        """Wait until it has saved so often, or ended; whether it is alive."""
        while self.process.poll() is None and self.text().count("\nsaved update-") < count:
            time.sleep(0.005)
        return self.process.poll() is None

    def finish(self, expected: int) -> str:
        """Wait for its end; what it said. Ends the campaign where its exit code is another one."""
        code = self.process.wait(300)
        if code != expected:
            raise SystemExit(f"exit code {code}, not {expected}:\n{self.text()[-3000:]}")
        return self.text()


class Forked:
    """`mt ARGUMENTS` in a fork of this process, which has imported everything: most of a start, saved."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.pid = os.fork()
        self.code: int | None = None
        if self.pid == 0:
            os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 1
            try:
                code = importlib.import_module("mt.cli").main(arguments)
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """The exit code, minus n for signal n, or None."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise SystemExit(f"process {self.pid} hangs")
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def preload() -> None:
    """Import what a training imports, without starting a thread."""
    for name in ("mt.config.compose", "mt.training.run", "torch._dynamo", "torch.utils.tensorboard", "sacremoses"):
        importlib.import_module(name)
    for name in ("sacrebleu", "sentencepiece", "hydra", "omegaconf", "mt.cli"):
        importlib.import_module(name)


def write_corpus(folder: Path) -> list[str]:
    """A few hundred made-up pairs, each translated word by word; overrides that name them."""
    generator = random.Random(1)
    words = [f"{first}{second}" for first in "bdfgklm" for second in ("an", "el", "ir", "os", "ul")]
    for split, count in (("train", 300), ("dev", 20)):
        lines = [[generator.choice(words) for _ in range(generator.randint(3, 12))] for _ in range(count)]
        for language, end in (("en", ""), ("de", "en")):
            text = "".join(" ".join(word + end for word in line) + "\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return [f"data.{split}=[{folder}/{split}.en,{folder}/{split}.de]" for split in ("train", "dev")]


if __name__ == "__main__":
    sys.exit(main())
