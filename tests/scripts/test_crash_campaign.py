"""A short crash campaign: scripts/crash_campaign.py runs long ones."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_few_kills_at_random_moments_lose_nothing(tmp_path):
    options = ["--kills", "4", "--updates", "60", "--damage", "0.5", "--two-processes", "0", "--forked", "--seed", "2"]
    command = [sys.executable, "scripts/crash_campaign.py", *options, "--folder", str(tmp_path / "campaign")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("run-0: ") and "4 kills" in done.stdout.splitlines()[-1]
