pytest_plugins = ["tests.common_fixtures", "tests.browser_fixture", "tests.data_fixtures", "tests.experiment_fixtures"]
