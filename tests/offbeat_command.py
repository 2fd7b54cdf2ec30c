"""``offbeat …`` within this process, where the fixtures of one test are too short-lived."""

from click.testing import CliRunner

from offbeat.cli.main import app


def offbeat_output(*arguments: object) -> str:
    """Run a command and return its output; its errors are raised.

    A command that is called without ``offbeat`` before it would keep help options of its own for the tests after.
    """
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
