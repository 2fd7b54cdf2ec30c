pytest_plugins = ["tests.common_fixtures", "tests.data_fixtures", "tests.experiment_fixtures"]
