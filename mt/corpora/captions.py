"""A corpus of generated English and German image captions that comes with mt and needs no network."""

import lzma
from importlib.resources import files
from pathlib import Path

from mt.config.schema import DataConfig
from mt.corpora.formats import Bitext, Report, Sources, check_direction
from mt.errors import UserError, explain_os_errors
from mt.files import atomic_write

TEXT = "captions.tsv.xz"  # English, tab, German; the splits in this order
SIZES = {"test": 500, "dev": 500, "train": 20_000}
LANGUAGES = ("en", "de")


def locate(config: DataConfig, report: Report, training: bool) -> Sources:
    """The files in the raw folder; those that are missing are unpacked into it."""
    check_direction(config, LANGUAGES)
    folder = Path(config.raw_folder).absolute()
    if not all((folder / f"{split}.{language}").is_file() for split in SIZES for language in LANGUAGES):
        report(f"unpacking the captions into {folder}")
        _unpack(folder)

    def parts(split: str) -> list[Bitext]:
        source, target = (folder / f"{split}.{language}" for language in config.languages)
        return [Bitext(source, target, config.languages)]

    return Sources(parts("train"), parts("dev"), {"test": lambda: parts("test")})


def _unpack(folder: Path) -> None:
    lines = iter(lzma.decompress(files("mt.corpora").joinpath(TEXT).read_bytes()).decode("utf-8").split("\n"))
    with explain_os_errors(f"cannot write {folder} (data.raw_dir)"):
        folder.mkdir(parents=True, exist_ok=True)
        for split, size in SIZES.items():
            pairs = [next(lines).split("\t") for _ in range(size)]
            for column, language in enumerate(LANGUAGES):
                path, text = folder / f"{split}.{language}", "".join(pair[column] + "\n" for pair in pairs)
                if not path.exists():
                    atomic_write(path, text)
                elif path.read_bytes() != text.encode():
                    raise UserError(f"{path} is not part of this corpus: set data.raw_dir to an empty or new folder")
