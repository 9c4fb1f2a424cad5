"""Several processes train like one: the same updates, files and scores, also after a resume."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests_support import last_weights, raw_events, records, toy_config, toy_pairs, write_pairs

from mt.config.schema import OptimConfig, Optimizer, Precision, Schedule
from mt.config.stored import to_plain
from mt.run_folder import RunFolder
from mt.training.run import train

DRIVER = Path(__file__).parent.parent / "process_driver.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(DRIVER.parent.parent)}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def together(tmp_path, count, entries, launcher=("--standalone",)):
    """Run the entries (see process_driver.py) in `count` processes, and return their stderr."""
    path = tmp_path / f"work-{count}.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    command = [*TORCHRUN, *launcher, f"--nproc-per-node={count}", str(DRIVER), str(path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stderr


def entry(config, **more):
    return {"config": to_plain(config), **more}


def alone(config):
    threads = torch.get_num_threads()
    try:
        assert train(config) == 0
    finally:
        torch.set_num_threads(threads)


def folder(config):
    return Path(config.run.root) / config.run.name


def weights(config):
    return last_weights(RunFolder(folder(config)))


def difference(one, other):
    """The norm of the difference of all weights, relative to their norm."""
    one, other = (torch.cat([tensors[name].flatten() for name in sorted(tensors)]) for tensors in (one, other))
    return float((one - other).norm() / other.norm())


def named(config, name, **train):
    return replace(config, run=replace(config.run, name=name), train=replace(config.train, **train))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def config(place):
    """Sentences of 4 to 40 words, and short translations, because an untrained model does not end them by itself."""
    config = toy_config(place, threads=1)
    sentences = toy_pairs(500)
    joined = [[" ".join(side) for side in zip(*sentences[i : i + 1 + i % 5], strict=True)] for i in range(0, 450, 2)]
    data = replace(config.data, train=write_pairs(place, "unequal", joined), test={}, max_tokens=100)
    return replace(config, data=data, decode=replace(config.decode, max_length_a=0.0, max_length_b=6))


SGD = OptimConfig(name=Optimizer.sgd, schedule=Schedule.constant, peak_lr=0.1, warmup_steps=1)
# In float32, a sum depends on its order. Adam amplifies this more than SGD, but a wrong divisor has a larger effect. In
# bfloat16, the gradient of each batch is rounded to 8 bits before it is added.
CASES = {
    "sgd": (SGD, Precision.fp32, 5, 1e-6),
    "sgd-bf16": (SGD, Precision.bf16, 5, 2e-4),
    "adam": (OptimConfig(schedule=Schedule.constant, peak_lr=0.001, warmup_steps=1), Precision.fp32, 20, 5e-5),
}
TOLERANCE = {case: tolerance for case, (*_, tolerance) in CASES.items()}  # of the weights
LOSS_TOLERANCE = {Precision.fp32: 1e-4, Precision.bf16: 3e-3}
LIMITS = {"whole": 4000, "half": 450, "quarter": 225}  # an update of one process has about 900 cells
STOPS = {  # {name: keys of an entry in process_driver.py}
    "within-an-epoch": {"signal": [1, 17, signal.SIGTERM], "code": 143},
    "at-an-epochs-end": {"signal": [0, 12, signal.SIGINT], "code": 130},
    "while-decoding": {"signal": [1, 12, signal.SIGUSR1], "during": "decoding", "code": 138},
    "while-saving": {"signal": [0, 12, signal.SIGHUP], "during": "saving", "code": 129},
}


@pytest.fixture(scope="module")
def table(config):
    """The configs of CASES x LIMITS x {1, 2, 3, 4 processes}; fewer in bf16, which is slow if emulated."""
    return {
        (case, limit, count): replace(
            named(config, f"{case}-{limit}-{count}", max_updates=updates, batch_tokens=cells, precision=precision),
            optim=optim,
        )
        for case, (optim, precision, updates, _) in CASES.items()
        for limit, cells in LIMITS.items()
        for count in (1, 2, 3, 4)
        if precision is Precision.fp32 or (limit != "half" and count != 3)
    }


@pytest.fixture(scope="module")
def restarts(config):
    """An undisturbed run with dropout, and runs that STOPS interrupts."""
    config = replace(
        config,
        model=replace(config.model, dropout=0.2),
        train=replace(config.train, max_updates=30, update_tokens=1500, log_every=4, average=2),
        decode=replace(config.decode, batch_tokens=20),  # so that each process has something to decode
    )
    return {name: named(config, name) for name in ("undisturbed", *STOPS, "three", "three-stopped")}


@pytest.fixture(scope="module")
def trained(config, table, restarts, place):
    """Trains all entries of this file on several processes, with one launch for each number of processes."""
    wrong = {case: named(table[case, "quarter", 2], f"wrong-{case}") for case in CASES}
    moved = named(config, "moved", max_updates=20)
    more = [entry(each, wrong=True) for each in wrong.values()]
    more += [entry(restarts["undisturbed"])]
    for name, stop in STOPS.items():
        more += [entry(restarts[name], **stop), entry(restarts[name])]
    broken = named(config, "broken", max_updates=6)
    more += [entry(broken, nan=[1, 3])]
    more += [entry(moved, signal=[0, 11, signal.SIGTERM], code=143)]
    three = [entry(restarts["three"]), entry(restarts["three-stopped"], signal=[2, 17, signal.SIGTERM], code=143)]
    three += [entry(restarts["three-stopped"])]
    few = named(replace(config, optim=SGD), "few", update_tokens=60, max_updates=12)
    for count in (2, 3, 4):
        entries = [entry(each) for (_, _, of), each in table.items() if of == count]
        together(place, count, entries + {2: more, 3: three, 4: [entry(few)]}[count])
    return {"moved": moved, "few": few, "broken": broken, **{f"wrong-{case}": each for case, each in wrong.items()}}


def test_any_number_of_processes_and_any_batch_limit_give_the_same_updates(trained, table):
    for (_, _, count), each in table.items():
        if count == 1:
            alone(each)
    print()
    for (case, limit, count), each in table.items():
        reference = table[case, "whole", 1]
        found = difference(weights(each), weights(reference))
        print(f"{case} {limit:8} {count} processes: {found:.1e}")
        assert found < TOLERANCE[case], (case, limit, count)
        relative = LOSS_TOLERANCE[each.train.precision]
        for key in ("loss", "nll", "gradient_norm"):
            expected = [line[key] for line in records(folder(reference), "train")]
            assert [line[key] for line in records(folder(each), "train")] == pytest.approx(expected, rel=relative)
        tokens = [line["target_tokens"] for line in records(folder(reference), "train")]
        assert [line["target_tokens"] for line in records(folder(each), "train")] == tokens
    for case in CASES:
        found = difference(weights(trained[f"wrong-{case}"]), weights(table[case, "whole", 1]))
        print(f"{case} normalized wrongly: {found:.1e}")
        assert found > 3 * TOLERANCE[case]


def numbers(config):
    """All numbers in metrics.jsonl except time and memory."""
    lines = records(folder(config))
    return [{k: v for k, v in line.items() if k not in ("target_tokens_per_second", "memory_gib")} for line in lines]


@pytest.mark.parametrize("name", STOPS)
def test_stopped_and_resumed_on_two_processes_equals_undisturbed(trained, restarts, name):
    undisturbed, stopped = restarts["undisturbed"], restarts[name]
    log = (folder(stopped) / "train.log").read_text()
    _, update, number = STOPS[name]["signal"]
    assert f"stopped by signal {number:d} at update {update};" in log
    assert f"resuming from update-{update:07d}" in log
    if name == "while-decoding":  # it stopped before the decoding ended
        assert log.index("stopped by signal") < log.index(f"validation at update {update}:")
    assert difference(weights(stopped), weights(undisturbed)) == 0
    assert numbers(stopped) == numbers(undisturbed)
    assert raw_events(folder(stopped)) == raw_events(folder(undisturbed))
    assert [line["update"] for line in records(folder(undisturbed), "validation")] == [4, 8, 12, 16, 20, 24, 28, 30]


def test_a_process_without_a_sentence_joins_in(config, trained):
    one = named(trained["few"], "few-alone")
    alone(one)
    assert difference(weights(trained["few"]), weights(one)) < TOLERANCE["sgd"]
    assert numbers(one)[0]["target_tokens"] <= 60  # and some sentences have 45


def test_a_gradient_that_is_no_number_on_one_process_is_skipped_on_all(trained):
    log = (folder(trained["broken"]) / "train.log").read_text()
    assert log.count("update 3 skipped: its gradient is not finite (1 in total)") == log.count("skipped") == 1
    lines = records(folder(trained["broken"]), "train")
    assert [line["update"] for line in lines if line["loss"] is None] == [3]
    assert lines[2]["target_tokens"] == lines[1]["target_tokens"] < lines[3]["target_tokens"]
    assert all(bool(tensor.isfinite().all()) for tensor in weights(trained["broken"]).values())


def test_three_processes_add_up_in_the_same_order_after_a_restart(trained, restarts):
    assert difference(weights(restarts["three-stopped"]), weights(restarts["three"])) == 0
    assert numbers(restarts["three-stopped"]) == numbers(restarts["three"])


def test_another_number_of_processes_resumes_with_the_same_updates(config, trained):
    whole, moved = named(config, "whole-20", max_updates=20), trained["moved"]
    alone(whole)
    alone(moved)
    assert difference(weights(moved), weights(whole)) < TOLERANCE["adam"]
    tokens = [line["target_tokens"] for line in records(folder(whole), "train")]
    assert [line["target_tokens"] for line in records(folder(moved), "train")] == tokens
    assert "saved by 2 processes, now 1" in (folder(moved) / "train.log").read_text()


def test_two_machines_give_the_weights_of_one_process(config, tmp_path):
    two, one = named(config, "two"), named(config, "one")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rendezvous = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
    with ThreadPoolExecutor() as agents:
        places = [tmp_path / "a", tmp_path / "b"]
        for place in places:
            place.mkdir()
        done = [
            agents.submit(together, place, 1, [entry(two)], [*rendezvous, "--local-addr=127.0.0.1"]) for place in places
        ]
        alone(one)
        for each in done:
            each.result()
    assert difference(weights(two), weights(one)) < TOLERANCE["adam"]


def overrides(config):
    """The toy config as overrides."""
    source, target = config.data.train
    dev = ",".join(config.data.dev)
    return [
        *("data=files", f"data.train=[{source},{target}]", f"data.dev=[{dev}]", f"run.root={config.run.root}"),
        *(
            f"data.prepared_dir={config.data.prepared_dir}",
            "tokenizer.vocab_size=330",
            "model.d_model=16",
            "model.d_ff=32",
        ),
        *("model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "decode.max_length_a=0"),
        *("decode.max_length_b=6", "train.threads=1", "train.update_tokens=300", "train.average=1"),
        *("train.device=cpu", "train.precision=fp32"),
    ]


def test_a_fault_on_one_process_ends_all_with_its_traceback(config, tmp_path):
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", str(DRIVER), "fail", "1", "3", "train"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *overrides(config), "run.name=faulty", "train.max_updates=100000"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert time.monotonic() - began < 60
    assert done.stderr.count("RuntimeError: broken on purpose") == 1
    assert "process 1:" in done.stderr and "process 0:" not in done.stderr


def working_on(root):
    """Running processes whose command line names this root."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"run.root={root}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def mt(*arguments, env=ENVIRONMENT, **options):
    return subprocess.Popen([sys.executable, "-m", "mt", *arguments], env=env, text=True, **options)


def test_a_killed_launcher_leaves_nobody_two_jobs_do_not_meet_and_nothing_else_is_written(config, tmp_path):
    common = [*overrides(config), "model.dropout=0.2", "train.devices=2", "train.max_updates=150", "train.save_every=7"]
    elsewhere = {name: tmp_path / name for name in ("HOME", "TMPDIR", "cwd")}
    for path in elsewhere.values():
        path.mkdir()
    env = {**ENVIRONMENT, **{name: str(elsewhere[name]) for name in ("HOME", "TMPDIR")}}
    pipe = {"stderr": subprocess.PIPE, "start_new_session": True, "cwd": elsewhere["cwd"], "env": env}
    killed = mt("train", *common, "run.name=killed", **pipe)
    whole = mt("train", *common, "run.name=whole", **pipe)
    for line in killed.stderr:
        if "saved update-0000014" in line:
            break
    killed.kill()
    warned = mt("train", *common, "run.name=killed", **pipe)  # at once: workers of the killed launcher may still save
    for line in warned.stderr:
        if "saved update-" in line:
            break
    warned.send_signal(signal.SIGUSR1)
    assert warned.wait(20) == 138
    again = mt("train", *common, "run.name=killed", **pipe)
    assert whole.wait(120) == 0, whole.stderr.read()[-3000:]
    assert again.wait(120) == 0, again.stderr.read()[-3000:]
    runs = {name: named(config, name) for name in ("killed", "whole")}
    assert difference(weights(runs["killed"]), weights(runs["whole"])) == 0
    assert numbers(runs["killed"]) == numbers(runs["whole"])
    log = (folder(runs["killed"]) / "train.log").read_text()
    assert "resuming from update-" in log and log.count("done: sacreBLEU") == 1
    assert len(list((folder(runs["whole"]) / "tensorboard").iterdir())) == 1
    # torch makes an empty folder for its compiler cache in TMPDIR
    assert [path for place in elsewhere.values() for path in place.rglob("*") if path.is_file()] == []
    assert [*elsewhere["HOME"].iterdir(), *elsewhere["cwd"].iterdir()] == []
    for process in (killed, warned, whole, again):
        process.wait()
        process.stderr.close()
    assert working_on(config.run.root) == []


def test_translating_and_scoring_are_shared_out_and_give_the_same(config, tmp_path):
    config = replace(config, data=replace(config.data, test={"toy": config.data.dev}))
    config = replace(
        config, train=replace(config.train, max_updates=30), decode=replace(config.decode, max_length_b=12)
    )
    alone(config)
    lines = tmp_path / "lines"
    lines.write_text("\ufeffthe dog sees a cat\n\na bird likes the big red dog and now here\n", encoding="utf-8")
    for name, devices in (("one", 1), ("four", 4)):  # more processes than sentences
        with lines.open() as given, (tmp_path / name).open("w") as written:
            options = [
                f"checkpoint={folder(config)}",
                f"devices={devices}",
                "threads=1",
                "decode.nbest=2",
                "device=cpu",
            ]
            assert mt("translate", *options, stdin=given, stdout=written, stderr=subprocess.DEVNULL).wait(100) == 0
    assert (tmp_path / "four").read_bytes() == (tmp_path / "one").read_bytes() != b""
    before = json.loads((folder(config) / "scores.json").read_text())
    hypotheses = (folder(config) / before["toy"]["hypotheses"]).read_bytes()
    (folder(config) / "scores.json").unlink()
    smaller = "decode.batch_tokens=20"  # several batches
    assert (
        mt(
            "evaluate",
            f"checkpoint={folder(config)}",
            "device=cpu",
            "devices=2",
            "threads=1",
            smaller,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).wait(100)
        == 0
    )
    after = json.loads((folder(config) / "scores.json").read_text())
    assert (folder(config) / after["toy"]["hypotheses"]).read_bytes() == hypotheses
    for name in ("toy", "dev"):
        assert {k: v for k, v in after[name].items() if k != "decode"} == {
            k: v for k, v in before[name].items() if k != "decode"
        }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["train.devices=0"], "must be auto or a number of processes"),
        (["train.devices=two"], "must be auto or a number of processes"),
        (["train.devices=2", "model.heads=3"], "model.heads=3"),
    ],
)
def test_what_can_be_known_before_starting_is_said_once(config, given, said):
    process = mt("train", *overrides(config), *given, stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert len(told.splitlines()) == 1 and said in told
