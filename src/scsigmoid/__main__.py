"""Entry point of the command ``scsigmoid``, and of ``python -m scsigmoid``."""

import os
import sys
from contextlib import suppress
from types import TracebackType


def main() -> int:
    """Run the command line. If a package of an extra is missing, print one line and return 1."""
    hide_errors_of_h5py()
    try:
        from scsigmoid.cli import main as run

        code = run()
    except KeyboardInterrupt:  # Ctrl-C before the stage starts
        return 130
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("scsigmoid"):
            raise
        print(
            f"scsigmoid: error: Python module {error.name} is missing; install scsigmoid[cells] to "
            "embed cells, or scsigmoid[workflow] to run the experiment",
            file=sys.stderr,
        )
        return 1
    if code and "h5py" in sys.modules:
        # HDF5 ends in a segmentation fault if it could not write a file.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    return code


def hide_errors_of_h5py() -> None:
    """Do not print the errors of h5py while it closes a file, for example on a full disk.

    There are two tracebacks for each open object of the file. The stage prints the error, too.
    """
    excepthook, unraisablehook = sys.excepthook, sys.unraisablehook

    def is_closing(trace: TracebackType | None) -> bool:
        return trace is not None and trace.tb_frame.f_code.co_filename == "h5py/_objects.pyx"

    def print_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not is_closing(trace):
            excepthook(kind, error, trace)

    def print_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
        if not is_closing(unraisable.exc_traceback):
            unraisablehook(unraisable)

    sys.excepthook, sys.unraisablehook = print_exception, print_unraisable


if __name__ == "__main__":
    sys.exit(main())
