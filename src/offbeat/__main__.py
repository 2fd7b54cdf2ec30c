"""``offbeat`` and ``python -m offbeat``."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        # Here and not above: the imports take a second or two, in which a user may press Ctrl-C as well.
        from offbeat.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
