"""scripts/slurm.sh with stand-ins for SLURM's commands."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "slurm.sh"

STAND_INS = {
    "scontrol": 'echo "scontrol $*" >> calls; [[ $1 == show ]] && echo node7 && echo node8; true',
    "scancel": 'echo "scancel $*" >> calls; kill -TERM "$(cat training)"',
    # The training on the nodes; after SIGTERM it takes a while to save
    "srun": 'trap "sleep 0.5; echo saved >> calls; exit 1" TERM; echo "srun $*" >> calls; echo $$ > training;'
    " if [[ -e fails ]]; then exit 3; fi; while [[ ! -e finish ]]; do sleep 0.05; done",
}


@pytest.fixture
def slurm(tmp_path):
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "31", "SLURM_NNODES": "2"}
    environment |= {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_GPUS_ON_NODE": "4"}

    def start():
        return subprocess.Popen([SCRIPT, "experiment=captions", "run.name=a b"], cwd=tmp_path, env=environment)

    return tmp_path, start


def wait_for(path):
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_warning_saves_and_requeues(slurm, number):
    folder, start = slurm
    job = start()
    wait_for(folder / "training")
    time.sleep(0.2)
    job.send_signal(number)
    assert job.wait(10) == 0
    calls = (folder / "calls").read_text().splitlines()
    assert calls[0] == "scontrol show hostnames node[7-8]"
    assert calls[1].startswith("srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d")
    assert calls[1].endswith("--rdzv-endpoint=node7:20031 --rdzv-id=31 -m mt train experiment=captions run.name=a b")
    assert calls[2:] == ["scancel --signal=TERM 31", "saved", "scontrol requeue 31"]


@pytest.mark.parametrize(("file", "code"), [("finish", 0), ("fails", 3)])
def test_without_a_warning_nothing_is_requeued(slurm, file, code):
    folder, start = slurm
    (folder / file).touch()
    assert start().wait(10) == code
    assert "requeue" not in (folder / "calls").read_text()
