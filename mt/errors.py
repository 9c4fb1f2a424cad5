"""The exceptions for mistakes that the user can correct: one line of text that says what is wrong and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Something that only the user can correct, such as a bad key, file or value."""

    exit_code = 2


class DataUnavailable(UserError):
    """A file that is not on this machine and cannot be downloaded now."""

    exit_code = 3


class Corrupt(UserError):
    """A file of a checkpoint or of an export that is missing, cut short or changed."""


@contextmanager
def explain_os_errors(what: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """Turns an OSError in this block into "WHAT: reason", such as "cannot write x: No space left on device"."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from error


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its class if it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]
