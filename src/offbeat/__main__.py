"""``offbeat`` and ``python -m offbeat``."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        # Here and not above, so that Ctrl-C during the imports is caught, too.
        from offbeat.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
