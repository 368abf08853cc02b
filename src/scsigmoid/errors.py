"""The one exception that users see."""


class UserError(Exception):
    """A mistake that the user can mend.

    The message is one line: the file or setting, what is wrong with it, what to do.  The command
    line prints it without a traceback and ends with exit code 1.
    """
