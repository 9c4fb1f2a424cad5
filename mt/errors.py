"""The one exception that a user's mistake raises: its text is one line and names the way out."""


class UserError(ValueError):
    """Something only the user can mend (a bad key, file or value): one line, exit code 2."""
