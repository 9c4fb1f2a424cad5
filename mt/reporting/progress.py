"""One progress bar on a terminal, and nothing anywhere else."""

import os
import sys
from types import TracebackType


class Progress:
    """A bar with the time left, on stderr where that is a terminal; elsewhere every call does nothing."""

    def __init__(self, total: float, start: float = 0, unit: str = "updates", shown: bool = True) -> None:
        """`total` and `start` count `unit`: updates, or seconds where the budget is time."""
        from tqdm import tqdm

        self._bar = tqdm(
            total=round(total),
            initial=round(start),
            unit=f" {unit}",
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}{postfix}]",
            file=sys.stderr,
            disable=not (shown and sys.stderr.isatty()),
            ncols=80,
            nrows=24,
            dynamic_ncols=_knows_its_size(),  # with a size of 0, as in some containers, no bar would show
            miniters=1,  # else a burst of quick updates makes the bar wait for as many slow ones
        )

    @property
    def live(self) -> bool:
        """Whether a bar is on the screen, so that a line of text must go above it."""
        return not self._bar.disable

    def update(self, done: float, postfix: str = "") -> None:
        """Show that `done` of the total are done (a position, not a step), with some text behind the bar."""
        if self.live:
            self._bar.set_postfix_str(postfix, refresh=False)
            self._bar.update(round(done) - self._bar.n)

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line, file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it stands; closing twice is harmless."""
        self._bar.close()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _knows_its_size() -> bool:
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError):
        return False
