"""The log of a run: each line appears once in each place, and a kill neither loses nor repeats lines."""

import io
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util

from mt.errors import UserError
from mt.reporting.runlog import RunLog
from mt.run_folder import RunFolder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return accumulator


def metrics(folder: Path) -> list[dict]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_lines_go_once_to_console_and_file(tmp_path: Path, capsys) -> None:
    with RunLog(RunFolder(tmp_path / "run")) as log:
        log.info("reading data\rdone")
        log.warning("2 pairs dropped\r\n  as empty: Ü \udc80")
        written = (tmp_path / "run/train.log").read_bytes()  # written before the file is closed
    assert (
        capsys.readouterr().err == ("reading data\ndone\nwarning: 2 pairs dropped\n  as empty: Ü \\udc80\n")
        and (tmp_path / "run/train.log").read_bytes() == written
    )
    assert b"\r" not in written
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    texts = ["reading data", "done", "warning: 2 pairs dropped", r"  as empty: Ü \\udc80"]
    assert re.fullmatch("".join(f"{stamp}{text}\n" for text in texts), written.decode("utf-8"))


def test_without_a_folder_only_the_console_is_used(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with RunLog(None) as log:
        log.info("hello")
        log.scalars(1, {"loss": 1.0}, "train")
        log.text(1, "sample", "text")
    assert list(tmp_path.iterdir()) == []
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


def test_numbers_reach_json_and_tensorboard(tmp_path: Path) -> None:
    with RunLog(RunFolder(tmp_path)) as log:
        log.scalars(10, {"loss": 2.5, "tokens": 7}, "train")
        log.scalars(20, {"loss": float("nan"), "gradient_norm": float("inf")}, "train")
        log.scalars(20, {"bleu": 31.5}, "validation")
        log.text(20, "translations", "Ein Hund.\nTwo\u2028lines")
        assert len(metrics(tmp_path)) == 4  # each line is written at once
        assert events(tmp_path).Scalars("validation/bleu")[0].value == 31.5  # events too
        with pytest.raises(ValueError, match="kind"):
            log.scalars(30, {"kind": 1.0}, "train")
    assert metrics(tmp_path) == [
        {"update": 10, "kind": "train", "loss": 2.5, "tokens": 7},
        {"update": 20, "kind": "train", "loss": None, "gradient_norm": None},
        {"update": 20, "kind": "validation", "bleu": 31.5},
        {"update": 20, "kind": "sample", "tag": "translations", "text": "Ein Hund.\nTwo\u2028lines"},
    ]
    read = events(tmp_path)
    assert set(read.Tags()["scalars"]) == {
        "train/loss",
        "train/tokens",
        "train/gradient_norm",
        "validation/bleu",
    }
    first = read.Scalars("train/loss")[0]
    assert (first.step, first.value) == (10, 2.5)
    (sample,) = read.Tensors("translations/text_summary")
    assert sample.step == 20
    assert sample.tensor_proto.string_val[0].decode("utf-8") == "Ein Hund.\nTwo\u2028lines"


def raw_events(folder: Path) -> list[tuple[int, float]]:
    """All numbers in TensorBoard's files, including hidden ones."""
    found = []
    for path in sorted((folder / "tensorboard").glob("events.*")):
        for event in EventFileLoader(str(path)).Load():
            found += [
                (event.step, round(tensor_util.make_ndarray(value.tensor).item(), 3)) for value in event.summary.value
            ]
    return sorted(found)


def test_resuming_leaves_no_gap_and_no_double(tmp_path: Path) -> None:
    killed = RunLog(RunFolder(tmp_path))
    for update in range(1, 11):
        killed.scalars(update, {"loss": 100.0 + update}, "train")
    position = killed.position()
    for update in range(10, 16):  # 10 again: lines after the position are cut off even at the same update
        killed.scalars(update, {"loss": 150.0 + update}, "train")
    killed.info("before")
    killed._log.write("half a li")
    killed._metrics.write('{"update": 16, "ki')
    killed._log.flush(), killed._metrics.flush()
    other = RunLog(RunFolder(tmp_path), position)  # a second process, killed before it saved anything
    other.scalars(11, {"loss": 300.0}, "train")
    with RunLog(RunFolder(tmp_path), position) as log:
        for update in range(11, 21):
            log.scalars(update, {"loss": 200.0 + update}, "train")
        log.info("after")
    other.close(), killed.close()
    expected = [(u, 100.0 + u) for u in range(1, 11)] + [(u, 200.0 + u) for u in range(11, 21)]
    assert [(line["update"], line["loss"]) for line in metrics(tmp_path)] == expected
    assert raw_events(tmp_path) == expected
    assert [(event.step, event.value) for event in events(tmp_path).Scalars("train/loss")] == expected
    logged = [line[20:] for line in (tmp_path / "train.log").read_text().split("\n")[:-1]]
    assert logged[0] == "before" and logged[-1] == "after" and len(logged) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"train.log", "metrics.jsonl", "tensorboard"}


def test_a_terminal_that_is_gone_costs_nothing(tmp_path: Path, monkeypatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    with RunLog(RunFolder(tmp_path)) as log:
        log.info("written")
    assert "written" in (tmp_path / "train.log").read_text()


def test_a_terminal_that_hangs_up_under_the_bar_costs_nothing(tmp_path: Path, monkeypatch) -> None:
    class HungUp(Terminal):
        gone = False

        def write(self, text: str) -> int:
            if self.gone:
                raise OSError(5, "Input/output error")
            return super().write(text)

    terminal = HungUp()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunLog(RunFolder(tmp_path)) as log:
        log.progress(10)
        terminal.gone = True
        log.info("written")
        log.progress(50)
    assert "written" in (tmp_path / "train.log").read_text()


def test_the_log_of_another_process_says_nothing(capsys, monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunLog(None, console=False) as log:
        log.progress(10)
        log.info("hello")
        log.progress(50)
        assert log.position() == {}
    assert terminal.getvalue() == ""


def test_resuming_without_a_position_keeps_everything(tmp_path: Path, capsys) -> None:
    for update in (3, 2):
        with RunLog(RunFolder(tmp_path)) as log:
            log.scalars(update, {"loss": 1.0}, "train")
    assert [line["update"] for line in metrics(tmp_path)] == [3, 2]
    (tmp_path / "config.yaml").touch()  # of a run that was killed before it saved anything
    with RunLog(RunFolder(tmp_path), {}):
        assert not (tmp_path / "metrics.jsonl").read_text()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["missing", "failing"])
def test_training_goes_on_without_tensorboard(how: str, tmp_path: Path, monkeypatch, capsys) -> None:
    if how == "missing":
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    else:

        def fail(*arguments: object) -> None:
            raise OSError("No space left on device")

        monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", fail)
    with RunLog(RunFolder(tmp_path)) as log:
        log.scalars(1, {"loss": 1.0}, "train")
        log.scalars(2, {"loss": 0.5}, "train")
    assert capsys.readouterr().err.count("warning: TensorBoard is off") == 1
    assert [line["update"] for line in metrics(tmp_path)] == [1, 2]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run .*run\.root"):
        RunLog(RunFolder(tmp_path / "file/run"))


def test_no_bar_in_a_file(tmp_path: Path, capsys) -> None:
    with RunLog(RunFolder(tmp_path)) as log:
        log.progress(20)
        log.progress(30, "loss 1.0")
        log.info("update 30")
        log.end_progress()
    assert capsys.readouterr().err == "update 30\n"
    assert b"\r" not in (tmp_path / "train.log").read_bytes()


def test_one_bar_on_a_terminal(tmp_path: Path, monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunLog(RunFolder(tmp_path)) as log:
        log.progress(20)
        log.progress(30, "loss 1.0")
        log.info("a line of text")
        log.progress(60.4, "loss 0.5")
        log.end_progress()
        log.end_progress()
        log.info("the last line")
    shown = terminal.getvalue()
    assert " 20%|" in shown and " 60%|" in shown and "loss 0.5" in shown
    assert re.search(r"\r *\ra line of text\n", shown)  # the bar is cleared first, and redrawn after the line
    assert shown.endswith("\nthe last line\n")
    logged = (tmp_path / "train.log").read_text().split("\n")
    assert [line[20:] for line in logged[:-1]] == ["a line of text", "the last line"]


def test_the_bar_is_drawn_again_within_one_percent(tmp_path: Path, monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunLog(RunFolder(tmp_path)) as log:
        for update in range(1, 4):
            log.progress(20 + update / 100, f", update {update}")
            time.sleep(0.11)  # tqdm draws at most ten times a second
    assert ", update 3" in terminal.getvalue()


def test_a_bar_on_a_real_terminal_of_unknown_size(monkeypatch) -> None:
    reader, writer = os.openpty()  # 0 columns and 0 rows, as in containers
    with open(writer, "w", encoding="utf-8") as terminal, RunLog(None) as log:
        monkeypatch.setattr(sys, "stderr", terminal)
        log.progress(20)
        log.end_progress()
    shown = os.read(reader, 10_000)
    os.close(reader)
    assert b" 20%|" in shown


def test_leaving_with_an_error_ends_the_bar(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log = RunLog(None)
    log.progress(10)
    log.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert terminal.getvalue().endswith("\n")
