"""``offbeat-helper`` and ``python -m offbeat_private.helper``."""

import sys


def main() -> None:
    """Run the command line; the extra's packages may be missing."""
    try:
        # Here and not above, so that Ctrl-C during the imports is caught, too.
        from offbeat_core.command_line import run_program
        from offbeat_private.helper.commands import helper

        run_program(helper, "offbeat-helper")
    except ModuleNotFoundError as error:
        sys.exit(_missing(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _missing(error: ModuleNotFoundError) -> int:
    print(f"offbeat-helper: {error.name} is missing: pip install 'offbeat-client[helper]'", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
