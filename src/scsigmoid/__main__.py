"""Entry point of the command ``scsigmoid``, and of ``python -m scsigmoid``."""

import sys


def main() -> int:
    """Run the command line. If a package of an extra is missing, print one line and return 1."""
    try:
        from scsigmoid.cli import main as run

        return run()
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


if __name__ == "__main__":
    sys.exit(main())
