"""Exceptions for mistakes that the user can correct. Each has one line of text: what is wrong, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """A mistake that only the user can correct, such as a wrong key, file or value."""

    exit_code = 2


class DataUnavailable(UserError):
    """A file that is not on this machine and cannot be downloaded now."""

    exit_code = 3


class Corrupt(UserError):
    """A file of a checkpoint or an export is missing, truncated or modified."""


@contextmanager
def explain_os_errors(
    what: str, kind: type[UserError] = UserError, others: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turns OSErrors and `others` in this block into a `kind` with the text "WHAT: reason" ("cannot write x: ...")."""
    kinds: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise kind(f"{what}: {reason}") from error


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or the name of its class if it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]
