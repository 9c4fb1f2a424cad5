"""Kills training runs at random moments, resumes them, and checks that nothing is lost.

    python scripts/crash_campaign.py --kills 200

The script kills a small run on a made-up language (SIGKILL, SIGTERM, SIGINT) and repeats its command until the run is
finished, then starts the next run. Before some restarts, it truncates a file of the newest checkpoint. Every restart
must load, and the final weights and logged numbers must be exactly those of an undisturbed run. With --full-disk (root
only, for mounting), a run also fills a small file system.
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
SLOWEST_EXIT = 10.0  # seconds from SIGTERM or SIGINT to the exit


def main() -> int:
    """Run the campaign, and return 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--updates", type=int, default=200, help="updates of each run")
    parser.add_argument("--two-processes", type=float, default=0.1, help="share of runs on two processes")
    parser.add_argument("--damage", type=float, default=0.15, help="share of restarts before which a file is truncated")
    parser.add_argument("--full-disk", action="store_true", help="also let a run fill a file system (needs root)")
    parser.add_argument("--forked", action="store_true", help="fork instead of restarting Python, to save time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("outputs/crash_campaign"))
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs and their children ignore it
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
        f"{sum(campaign.kills.values())} kills ({kills}) in {number} runs, {campaign.damaged} checkpoints truncated,"
        f" slowest exit after SIGTERM or SIGINT {campaign.slowest:.1f} s, {time.monotonic() - began:.0f} s in total:"
        " every run ended with the weights and numbers of the undisturbed run"
    )
    return 0


class Campaign:
    """The settings and results of all runs."""

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
        self.seconds: dict[int, float] = {}  # of the undisturbed runs

    def run(self, name: str, processes: int, most_kills: int) -> None:
        """Kill and resume a run until it is finished or the number of kills is reached, then check its result."""
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
        """Check that a run reports a full disk, and that the same command resumes it once there is space."""
        place = self.folder / "small"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", place], check=True)
        try:
            full = self._start("full", 1, place).finish(2)
            if "cannot save" not in full or "No space left" not in full:
                raise SystemExit(f"the run did not report the full disk: {full[-500:]}")
            subprocess.run(["mount", "-o", "remount,size=100m", place], check=True)
            if "resuming from update-" not in self._start("full", 1, place).finish(0):
                raise SystemExit("the run on the full disk started again instead of resuming")
            if self._result("full", place) != self.expected[1]:
                raise SystemExit("the run on the full disk ended with other weights or numbers")
        finally:
            subprocess.run(["umount", place], check=True)
        print("full disk: reported, and the run resumed", flush=True)

    def _kill_once(self, name: str, processes: int) -> bool:
        """Start a run and kill it after a random time. Returns False if it finished before that."""
        process = self._start(name, processes)
        by_event = self.generator.random() < 0.5  # half of the kills follow a save
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
            number = signal.SIGKILL  # Python reports its own errors if it is interrupted while it starts
        began = time.monotonic()
        process.process.send_signal(number)
        code = process.process.wait(60)
        if number != signal.SIGKILL:
            self.slowest = max(self.slowest, time.monotonic() - began)
            if self.slowest > SLOWEST_EXIT:
                raise SystemExit(f"{name}: {self.slowest:.1f} seconds from signal {number} to the exit")
        if code == 0:
            return False  # it finished before the signal
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
        """The final weights, and all logged numbers except time and memory."""
        run = (root or self.folder) / name
        last = json.loads((run / "checkpoints" / "index.json").read_text())["last"]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        numbers: list[object] = [{key: value for key, value in line.items() if key not in TIMED} for line in lines]
        return (run / "checkpoints" / last / "model.safetensors").read_bytes(), numbers


class Process:
    """A running `mt train`, whose stderr goes to a file."""

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
        """Wait that long or until the process exits. Returns whether it is alive."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.process.poll() is None

    def wait_for_saves(self, count: int) -> bool:
        """Wait for `count` saves or until the process exits. Returns whether it is alive."""
        while self.process.poll() is None and self.text().count("\nsaved update-") < count:
            time.sleep(0.005)
        return self.process.poll() is None

    def finish(self, expected: int) -> str:
        """Wait for the exit, and return the output. Ends the campaign if the exit code is not the expected one."""
        code = self.process.wait(300)
        if code != expected:
            raise SystemExit(f"exit code {code}, not {expected}:\n{self.text()[-3000:]}")
        return self.text()


class Forked:
    """`mt ARGUMENTS` in a fork of this process, which saves the time of the imports."""

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
        """The exit code (-n for signal n), or None while the process is running."""
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
    """Import the modules that training imports, without starting a thread."""
    for name in ("mt.config.compose", "mt.training.run", "torch._dynamo", "torch.utils.tensorboard", "sacremoses"):
        importlib.import_module(name)
    for name in ("sacrebleu", "sentencepiece", "hydra", "omegaconf", "mt.cli"):
        importlib.import_module(name)


def write_corpus(folder: Path) -> list[str]:
    """Write a few hundred made-up pairs, translated word by word. Returns the overrides that name the files."""
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
