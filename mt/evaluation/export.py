"""`mt export`: a checkpoint for CTranslate2, checked against mt's own engine before it gets its name."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from mt.checkpoint import EXPORT_META, WEIGHTS, Checkpoint, hash_file
from mt.config import DecodeConfig, ExportJob, ExportType
from mt.data.sources import locate
from mt.data.text import read_pairs
from mt.decoding.conversion import convert
from mt.decoding.exported import EXPORT_FORMAT, ExportedTranslator, export_folder, installed
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.evaluate import EvaluationSet, file_test_set, held_out_files
from mt.evaluation.metrics import bleu
from mt.runtime import distributed
from mt.runtime.files import temporary_beside

CHECKED = 1000  # sentences of the development set that both engines translate
ENOUGH_FOR_BLEU = 200  # sentences: of fewer a single one moves it too far
# What may differ: the share of sentences whose greedy translation differs, and BLEU with the run's own beam.
TOLERANCE = {ExportType.float32: (0.02, 0.5), ExportType.int8: (0.5, 1.0)}


def export_command(job: ExportJob) -> None:
    """`mt export`: convert, translate the same text with both engines, refuse what differs too much."""
    if not installed():
        raise UserError("mt export needs CTranslate2: pip install ctranslate2")
    checkpoint = Checkpoint.open(job.checkpoint)
    folder = Path(job.output).absolute() if job.output else export_folder(checkpoint, job.format, job.type)
    if folder.exists() and not (folder / EXPORT_META).exists() and any(folder.iterdir()):
        raise UserError(f"output={folder} holds something else: name another folder")
    chosen = _check_set(job, checkpoint)
    temporary = temporary_beside(folder)
    try:
        temporary.mkdir(parents=True)
        _write(checkpoint, job, temporary)
        found = _compare(checkpoint, job, chosen, temporary)
        distributed.say(found)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print(folder)


def _check_set(job: ExportJob, checkpoint: Checkpoint) -> EvaluationSet:
    """What both engines translate: the user's files, else the run's development set."""
    if (job.input is None) != (job.reference is None):
        raise UserError("input= and reference= go together: give both, or neither for the run's development set")
    if job.input is not None and job.reference is not None:
        return file_test_set(job.input, job.reference)
    held_out = held_out_files(checkpoint.folder.parent.parent)
    if all(path.exists() for path in held_out):
        return file_test_set(*held_out)
    try:
        pairs = list(read_pairs(locate(checkpoint.config.data, distributed.say, training=False).dev))
    except UserError as error:
        raise UserError(f"{error}; or give input= and reference= to check the export with") from error
    if not pairs:
        raise UserError("the run has no development set here to check the export with: give input= and reference=")
    return EvaluationSet([source for source, _ in pairs], [target for _, target in pairs])


def _write(checkpoint: Checkpoint, job: ExportJob, folder: Path) -> None:
    """All that translating needs: model, tokenizers, configuration, and hashes of them."""
    tokenizers = checkpoint.load_tokenizers()
    positions = convert(checkpoint, tokenizers, job.type, folder)
    tokenizers.save(folder)
    shutil.copy(checkpoint.folder / "config.yaml", folder)
    meta = {
        "checkpoint": checkpoint.folder.name,
        "format": EXPORT_FORMAT,
        "weights": checkpoint.meta["hashes"][WEIGHTS],
        "type": job.type.value,
        "positions": positions,
        "hashes": {path.name: hash_file(path) for path in sorted(folder.iterdir())},
    }
    (folder / EXPORT_META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def _compare(checkpoint: Checkpoint, job: ExportJob, chosen: EvaluationSet, folder: Path) -> str:
    """How the two engines differ, in words. Raises UserError where that is too much."""
    lines, references = chosen.sources[:CHECKED], chosen.references[:CHECKED]
    decode, language = checkpoint.config.decode, checkpoint.config.data.target
    scores, shares = [], []
    for options in (replace(decode, beam_size=1, nbest=1), replace(decode, nbest=1)):
        one, other = _translate(checkpoint, folder, options, lines, job.threads)
        shares.append(sum(a != b for a, b in zip(one, other, strict=True)) / len(lines))
        scores.append((bleu(one, references, language), bleu(other, references, language)))
    share, difference = shares[0], abs(scores[1][0] - scores[1][1])
    text = (
        f"{job.type.value}, {len(lines)} sentences: {share:.1%} differ greedily, {shares[1]:.1%} with beam"
        f" {decode.beam_size}; BLEU {scores[1][0]:.2f} with mt, {scores[1][1]:.2f} with CTranslate2"
    )
    most, farthest = TOLERANCE[job.type]
    if share * len(lines) > max(1, most * len(lines)) or (len(lines) >= ENOUGH_FOR_BLEU and difference > farthest):
        way_out = (
            "type=float32" if job.type is ExportType.int8 else "other text (input=, reference=), or a later checkpoint"
        )
        raise UserError(
            f"the export is refused ({text}): {most:.0%} may differ greedily, and {farthest} BLEU: try {way_out}"
        )
    return text


def _translate(
    checkpoint: Checkpoint, folder: Path, options: DecodeConfig, lines: list[str], threads: int
) -> tuple[list[str], list[str]]:
    one = Translator.load(checkpoint.folder, options, "cpu", threads=threads)
    other = ExportedTranslator.load(folder, options, threads)
    return one.translate(lines), [found[0].text for found in other.translate_nbest(lines)]
