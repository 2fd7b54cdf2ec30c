# Everything runs in .venv, which is made when it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin

# Tests start hundreds of processes; without files of bytecode each compiles all modules again. The installation leaves
# the compilation to the first import (pip's --no-compile): most modules of large packages are never imported here.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help oldest run check bytecode test test-long test-all test-studies test-algorithm lint types unit coverage kills torture simulate-cluster torture-cluster audit faults hostile bench-simulation bench-peers bench-gpu test-gpu test-flower test-peers gpu-packages planted bench-service bench-viewers bench-privacy oidc-provider front-picture live-page docs axe reference algorithm missing benchmark-docs theory-docs performance-docs service-docs figures results wheel stranger images pythons resolve clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# .venv/installed has what Offbeat needs, installed-lint and installed-test also a group of pyproject.toml, installed-dev
# all groups. The last is installed in one go, since some of its packages take older versions of others.
PROJECTS := pyproject.toml packages/client/pyproject.toml studies/pyproject.toml
TORCH := .venv/lib/python*/site-packages/torch
OFFBEAT := --editable packages/client --editable . --editable studies
define venv
	$(PYTHON) -c 'import sys; sys.exit("Offbeat needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
endef
NEW_PIP := $(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" # knows groups

.venv/installed: $(PROJECTS)
	$(venv)
	$(BIN)/python -m pip install --quiet "setuptools>=77" # builds the three, which is faster than in isolation
	$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation $(OFFBEAT)
	rm -rf $(TORCH)/test $(TORCH)/bin/test_* # PyTorch's own tests in C++, 0.1 GB
	touch $@

.venv/installed-lint .venv/installed-test: .venv/installed-%: .venv/installed
	$(NEW_PIP)
	$(BIN)/python -m pip install --quiet --no-compile --group $*
	touch $@

.venv/installed-dev: $(PROJECTS)
	$(venv)
	$(NEW_PIP)
	$(BIN)/python -m pip install --quiet --no-compile $(OFFBEAT) --group dev
	touch .venv/installed
	touch .venv/installed-lint .venv/installed-test $@

run: .venv/installed ## compare FedAvg, FedAsync and FedBuff on Fashion-MNIST (about 2 minutes with the installation); ARGS="--set …" changes it
	$(BIN)/offbeat compare experiments/quickstart.toml --jobs 2 $(ARGS)

check: .venv/installed-dev ## lint, type-check and test what has changed since the branch left main (about a minute)
	$(BIN)/python tools/check.py

test: .venv/installed-dev lint types unit ## lint, type-check and run the tests, but not the long ones and those of the documentation

test-long: ## as make test, with the long tests, and all random scripts of the contract tests (make test and CI: a fifth)
	OFFBEAT_LONG=1 $(MAKE) test

lint: .venv/installed-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	cd studies && ../$(BIN)/lint-imports
	$(BIN)/python tools/algorithms.py exports
	$(BIN)/python tools/style.py

types: .venv/installed-dev
	$(BIN)/basedpyright

# CI and make test leave out what is marked as long.
QUICK := -m "not long"

# Six processes keep two processors busy, since many tests wait for other processes; tests/conftest.py has their order.
PARALLEL := -n 6 --dist loadfile --no-loadscope-reorder
UNIT := $(PARALLEL) --ignore=tests/docs tests
unit: .venv/installed-dev
	$(BIN)/pytest $(UNIT) $(if $(OFFBEAT_LONG),,$(QUICK))

# Compile the tests once, which takes a process 20 seconds; those of test-all would each do so. It says what is wrong.
bytecode: .venv/installed-dev
	-@$(BIN)/pytest --collect-only --quiet studies/tests tests > /dev/null

# In one go: each process imports PyTorch once, and short tests run while others wait.
test-all: .venv/installed-dev ## run what CI runs in this environment: the tests of unit, of docs, and the quick ones of studies
	$(BIN)/pytest $(PARALLEL) studies/tests tests $(QUICK)

test-studies: .venv/installed-dev ## run all tests of studies/; ARGS="-m 'not long'" runs the quick ones
	$(BIN)/pytest -n 3 --dist worksteal studies/tests $(ARGS)

# The ids of the contract's tests begin with the algorithm, or have it as a later part.
CONTRACT = $(shell grep -rlE "all_cases|cases_of|first_of_each|built_in" tests --include="test_*.py")
test-algorithm: .venv/installed-test ## run the tests of one algorithm, its own and the contract's; NAME=fedplain
	@test -f "tests/algorithms/test_$(NAME).py" || { echo 'NAME=$(NAME): there is no tests/algorithms/test_$(NAME).py'; exit 2; }
	$(BIN)/pytest tests/algorithms/test_$(NAME)*.py $(CONTRACT) -k "test_$(NAME) or [$(NAME) or -$(NAME)" $(ARGS)

coverage: .venv/installed-dev ## run all tests and print the lines that none of them reaches (takes a third longer)
	$(BIN)/pytest $(UNIT) --cov --cov-report=term

kills: .venv/installed-dev ## kill a run and a sweep at 20 random moments, resume them, compare (CI kills twice)
	OFFBEAT_KILLS=20 $(BIN)/pytest -v tests/e2e/test_resume.py tests/e2e/test_sweep_kills.py

torture: .venv/installed-dev ## kill server and clients, 200 times each of six runs, on good lines and bad ones, and of two on one server, then server, helper and clients of five private runs, 200 times each (CI: 3, and 1 each; takes two hours)
	OFFBEAT_SERVER_KILLS=200 $(BIN)/pytest -v tests/e2e/test_service_kills.py tests/e2e/test_service_bad_lines.py tests/e2e/test_several_runs.py tests/e2e/test_host_kills.py tests/service/hosting/test_crash_points.py
	OFFBEAT_PRIVATE_KILLS=200 $(BIN)/pytest -v tests/e2e/test_private_service.py

simulate-cluster: .venv/installed-dev ## play schedules of a simulated cluster for ten minutes, from a new seed each time (CI: 8 seconds, from seed 0)
	OFFBEAT_CLUSTER_SECONDS=600 OFFBEAT_CLUSTER_SEED=$$(date +%s)000 $(BIN)/pytest -v tests/cluster/test_cluster.py

ROUNDS ?= 100
torture-cluster: .venv/installed-dev ## play ROUNDS rounds (CI: 1) of SEED with clusters of PostgreSQL, an S3 server, nginx, servers, fronts, a helper: each part is killed, stopped or cut off (100: five hours)
	OFFBEAT_ROUNDS=$(ROUNDS) OFFBEAT_SEED=$(SEED) $(BIN)/pytest -v tests/e2e/test_cluster_rounds.py
	OFFBEAT_TAKE_OVERS=$(ROUNDS) $(BIN)/pytest -v tests/e2e/test_take_over.py

audit: .venv/installed-dev ## attack the noise of private sums 20 times for each mechanism, and 10,000 released models (CI: once, and 100; takes a quarter of an hour)
	OFFBEAT_AUDITS=20 OFFBEAT_ATTACKS=10000 $(BIN)/pytest -v tests/offbeat_private/noise/test_audit.py tests/worlds/test_noise_attack.py

faults: .venv/installed-dev ## let each system call of the service fail once in process, and 200 of a real server's (needs strace)
	OFFBEAT_FAULTS=all OFFBEAT_SERVER_FAULTS=200 $(BIN)/pytest -v tests/service/test_faults.py tests/e2e/test_service_faults.py

hostile: .venv/installed-dev ## attack a server with 100,000 hostile connections, over HTTP and over TLS, and one of several runs, with 100,000 files of runs (CI: 300 each), and 100,000 callbacks of logins (CI: 1,000)
	OFFBEAT_HOSTILE=100000 $(BIN)/pytest -v tests/service/test_hostile.py tests/service/hosting/test_hostile_host.py tests/worlds/test_hostile_run_files.py tests/service/login/test_random_callbacks.py

bench-simulation: .venv/installed ## client updates a second, beside a plain loop; ARGS="--quick" takes a few minutes
	$(BIN)/python benchmarks/simulation.py $(ARGS)
	$(BIN)/python benchmarks/event_loop.py $(ARGS)
	$(BIN)/python benchmarks/model_size.py $(ARGS)

planted: .venv/installed ## how often a report's finding is wrong, in planted worlds with a known truth (6 minutes); ARGS="--tables 200", or ARGS="--real" for 40 real reports
	$(BIN)/python benchmarks/planted_worlds.py $(ARGS)

GPU_PACKAGES := build/gpu-packages
gpu-packages: ## collect the few pure-Python packages that test-gpu and bench-gpu need, for a machine without a registry
	$(PYTHON) -m pip install --quiet --upgrade --no-deps --target $(GPU_PACKAGES) annotated-types cloudpickle pytest pluggy iniconfig packaging pygments \
	  "pfl>=0.6" dp-accounting prv-accountant multiprocess dill
	$(PYTHON) -m pip install --quiet --upgrade --no-deps --only-binary :all: --python-version 3.12 --target $(GPU_PACKAGES) safetensors

# On a GPU machine these two run with its own Python and PyTorch.
GPU_PYTHON ?= $(PYTHON)
test-gpu: ## tests that need a CUDA GPU, with GPU_PYTHON's own PyTorch; see gpu-packages
	PYTHONPATH=src:packages/client:$(GPU_PACKAGES) $(GPU_PYTHON) -m pytest --noconftest -p no:cacheprovider -W default tests/devices

bench-gpu: ## client updates a second on a CUDA GPU, beside a plain loop on it; writes build/gpu.json and the page's table
	mkdir -p build
	PYTHONPATH=src:packages/client:studies/peers:$(GPU_PACKAGES) $(GPU_PYTHON) benchmarks/gpu.py --output build/gpu.json $(ARGS) | tee build/gpu.txt
	$(GPU_PYTHON) docs/make_performance.py build/gpu.txt

bench-service: .venv/installed ## what the server takes, beside bare sockets (20 minutes); ARGS="--quick", or ARGS="--peer" for Flower's too
	$(BIN)/python benchmarks/service.py $(ARGS)

bench-viewers: .venv/installed ## what ten open live pages cost the server per update, at a steady pace and at its limit (10 minutes); ARGS="--quick"
	$(BIN)/python benchmarks/viewers.py $(ARGS)

front-picture: .venv/installed ## run experiments/nights.toml, draw the picture of the front page from it, and print its numbers (two minutes)
	$(BIN)/offbeat compare experiments/nights.toml --jobs 2
	$(BIN)/python docs/make_front_picture.py

live-page: .venv/installed-dev ## take the pictures of docs/concepts/live-page.md from a real run, in Chromium
	PYTHONPATH=. $(BIN)/python docs/make_live_page.py

bench-privacy: .venv/installed ## what private sums cost client and helper, in bytes up, and a whole version beside a plain one (10 minutes)
	$(BIN)/python benchmarks/privacy.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/private_service.py

bench-peers: .venv/installed ## the same workloads on other simulators, each in an environment of its own (9 GB in build/peers), and their models beside ours
	$(BIN)/python studies/peers/run.py $(ARGS)
	$(BIN)/python studies/peers/outcome.py

docs: .venv/installed-dev reference ## build the documentation into site/, test its examples, links and numbers
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest tests/docs

axe: .venv/installed-dev ## check pages of the site that make docs built with axe-core, in Chromium (a minute; not in CI)
	PYTHONPATH=. $(BIN)/python tools/axe.py

reference: .venv/installed ## write docs/reference.md from what checks the experiment's file
	$(BIN)/python docs/make_reference.py

algorithm: .venv/installed-lint ## begin a new algorithm: its file, its test, its re-export; NAME=fedplain, or with CLASS=FedPlain
	@$(BIN)/python tools/algorithms.py new "$(NAME)" $(CLASS)

missing: .venv/installed ## list the pages, experiments and figures that algorithms still lack
	@$(BIN)/python tools/algorithms.py missing

benchmark-docs: .venv/installed ## write the page, charts and numbers of the benchmark from its data
	$(BIN)/python -m offbeat_studies.benchmark.page

theory-docs: .venv/installed ## measure the bounds again; write docs/theory-measurements.md and the figure of docs/theory.md
	$(BIN)/python -m offbeat_studies.papers.theory.page

performance-docs: .venv/installed ## measure all simulation speeds again, write their tables (an hour)
	mkdir -p build
	$(MAKE) --no-print-directory bench-simulation bench-peers | tee build/performance.txt
	$(BIN)/python docs/make_performance.py build/performance.txt

service-docs: .venv/installed ## measure the server and Flower's again, write their tables (an hour)
	mkdir -p build
	$(MAKE) --no-print-directory bench-service ARGS=--peer | tee build/service.txt
	$(BIN)/python docs/make_performance.py build/service.txt

results: .venv/installed ## run the papers' figures at the quick scale, write docs/results/; finished runs are only drawn again
	$(BIN)/offbeat papers --all --scale quick --pages docs/results

# Flower pins older versions of some packages than .venv has; the others are those of .venv.
FLOWER := build/flower
$(FLOWER)/installed: .venv/installed-dev
	$(PYTHON) -m venv --clear $(FLOWER)
	cd $(FLOWER)/lib/python*/site-packages && echo $(CURDIR)/.venv/lib/python*/site-packages > shared.pth
	$(FLOWER)/bin/python -m pip install --quiet --no-compile --editable packages/client --editable '.[flower]' 'flwr[simulation]'
	touch $@

test-flower: $(FLOWER)/installed ## tests with real Flower, in an environment of their own (0.3 GB); ARGS=--ignore=tests/flower/e2e leaves out the long ones
	$(FLOWER)/bin/python -m pytest -p no:cacheprovider -W default tests/flower $(ARGS)

oidc-provider: build/oidc-provider/installed ## install a certified OpenID Connect provider from npm, for tests of logins (3 MB)
build/oidc-provider/installed:
	npm install --silent --no-audit --no-fund --prefix $(@D) oidc-provider@9
	touch $@

# The other frameworks of docs/how-to/from-*.md; pip keeps the PyTorch of .venv.
PEERS := build/nvflare/installed build/appfl/installed
$(PEERS): build/%/installed: studies/peers/requirements/%.txt .venv/installed-dev
	$(PYTHON) -m venv --clear build/$*
	cd build/$*/lib/python*/site-packages && echo $(CURDIR)/.venv/lib/python*/site-packages > shared.pth
	build/$*/bin/python -m pip install --quiet --no-compile -r $<
	touch $@

test-peers: $(FLOWER)/installed $(PEERS) ## run the projects of the pages for users of Flower, NVFlare and APPFL on both sides (0.6 GB, five minutes)
	OFFBEAT_PEERS=1 $(BIN)/pytest -v tests/examples/migrate/test_peers.py

FIGURES := $(wildcard experiments/algorithms/*.toml)
figures: .venv/installed ## run experiments/algorithms/, draw the figures of docs/algorithms/ again; FIGURES=FILE for one of them
	set -e; for file in $(FIGURES); do \
	  name=$$(basename $$file .toml); \
	  $(BIN)/offbeat compare $$file --jobs 2 --fresh; \
	  cp runs/$$name/plots/accuracy_over_time.png docs/images/algorithms/$$name.png; \
	done

WHEEL := build/wheel
# Nothing of the checkout may be found: neither its modules nor its src/offbeat.egg-info.
IN_WHEEL := env -u PYTHONPATH PATH="$(CURDIR)/$(WHEEL)/environment/bin:$$PATH"
wheel: ## build the three wheels, install them into an empty environment, run a new experiment and the quickstart from it
	rm -rf build/lib build/bdist.* packages/client/build studies/build $(WHEEL)
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL) ./packages/client .
	$(PYTHON) tools/client_environment.py $(WHEEL)/offbeat_client-*.whl
	$(PYTHON) -m venv $(WHEEL)/environment
	cd $(WHEEL) && $(IN_WHEEL) python -m pip install --quiet *.whl
	cd $(WHEEL) && $(IN_WHEEL) offbeat new my-experiment && cd my-experiment && $(IN_WHEEL) offbeat compare experiment.toml --jobs 2
	cd $(WHEEL) && $(IN_WHEEL) offbeat new quickstart --template quickstart
	cd $(WHEEL)/quickstart && $(IN_WHEEL) offbeat compare quickstart.toml --jobs 2 --set seeds=[1] --set stop.virtual_seconds=400.0
	cd $(WHEEL) && ! $(IN_WHEEL) offbeat papers --list
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL)/studies ./studies
	cd $(WHEEL) && $(IN_WHEEL) python -m pip install --quiet studies/*.whl
	cd $(WHEEL) && $(IN_WHEEL) offbeat papers fedbuff/remarks --jobs 2 && $(IN_WHEEL) offbeat theory measure --seeds 20

stranger: ## follow the tutorial and a new server's README from the wheel in an empty environment, and print how long each step takes
	$(PYTHON) tools/stranger.py

images: ## build the images of the template service on Debian 12 and run a server and two sites in them (as root; needs podman, runc and debootstrap)
	tools/images.sh

pythons: ## run quick tests on the Pythons from 3.11 to 3.14 that are here, or that debootstrap gets as root (half an hour each; not in CI)
	tools/pythons.sh

# Nothing is installed: a resolver only looks whether each dependency has a wheel.
resolve: ## resolve the dependencies for Pythons and systems on which Offbeat has not been run
	$(PYTHON) -m venv build/resolver
	build/resolver/bin/python -m pip install --quiet uv
	set -e; for system in linux macos windows; do for version in 3.11 3.12 3.13 3.14; do \
	  build/resolver/bin/uv pip compile --quiet --only-binary :all: --python-version $$version --python-platform $$system \
	    --output-file build/resolver/$$system-$$version.txt pyproject.toml; \
	  echo "Python $$version on $$system: every dependency has a wheel"; \
	done; done

# The oldest versions that pyproject.toml allows of what Offbeat names itself; pip takes PyTorch, since uv would take
# another build.
OLDEST := build/oldest
oldest: ## run quick tests with the oldest versions of the dependencies that pyproject.toml allows (ten minutes; not in CI)
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1" uv
	$(OLDEST)/bin/uv pip compile --quiet --no-header --no-annotate --resolution lowest-direct packages/client/pyproject.toml pyproject.toml \
	  --extra sweep --extra cluster --extra blake3 | grep -E '^[a-z0-9.-]+==' | grep -vE '^(nvidia|triton)' > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-compile --constraint $(OLDEST)/constraints.txt --editable packages/client --editable '.[sweep,cluster,blake3]' --editable studies --group test axe-core-python selenium
	$(OLDEST)/bin/python -m pytest -n 3 -p no:cacheprovider -W default $(addprefix tests/,algorithms config coordinator report runs statistics sweeps service/http service/log cli) $(QUICK)

clean: ## remove .venv and caches; runs/ stays
	rm -rf packages/client/build studies/build .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage build site *.egg-info */*.egg-info packages/*/*.egg-info
