# Every target sets up what it needs; `make demo` and `make test` work on a fresh machine with Python 3.11 or later.

PYTHON  ?= python3
WORKERS ?= 2

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
UV    := $(BIN)/uv

# uv installs in a fraction of pip's time.
ENVIRONMENT := { $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV); } \
	&& { test -x $(UV) || $(BIN)/python -m pip --disable-pip-version-check --quiet install uv; }
INSTALL := $(UV) pip install --quiet --python $(BIN)/python

# CUDA libraries come with xgboost, which DiCE requires, and nothing here uses them. Its wheels for older Linux are the
# same package without them and save 0.7 GB.
SMALL_XGBOOST := $(INSTALL) --no-deps --only-binary :all: --python-platform x86_64-manylinux2014 xgboost

# Accessibility of reports is tested with axe-core, which comes from npm. Nothing else needs Node: without npm, or without
# its registry, those tests are skipped and say so.
AXE := tests/browser/node_modules/.package-lock.json
NPM := npm ci --prefix tests/browser --ignore-scripts --no-audit --no-fund --loglevel=error

.DELETE_ON_ERROR:
.PHONY: help demo test slow bench coverage check format prose docs dates reproduction dist core clean

help:
	@echo "make demo    protect real explanations and log them"
	@echo "make test    run the fast tests"
	@echo "make slow    run the slow tests"
	@echo "make bench   run the benchmarks"
	@echo "make coverage  run the fast tests in one process, and print per module which branches they take"
	@echo "make check   lint, formatting, types and layers"
	@echo "make format  format and fix what can be fixed"
	@echo "make prose   count habits of our English in comments, texts and pages"
	@echo "make docs    build the site into build/site"
	@echo "make dates   list the rules and standards of the control map that were checked more than a year ago"
	@echo "make reproduction DATA=FOLDER  run the experiments of the paper again on the tables in a folder"
	@echo "make dist    build wheel and source distribution, and install them in an empty environment"
	@echo "make core    run the core tests on the lowest versions, and on Python 3.12 and 3.13 where they are at hand"
	@echo "make clean   remove the environment and everything that was generated"

# The stamp is written last: an interrupted installation starts again.
$(READY): pyproject.toml
	@echo "Setting up $(VENV) (about a minute the first time) ..."
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	@$(ENVIRONMENT)
	@$(BIN)/python -c 'import xgboost' 2>/dev/null || test "$$(uname -sm)" != "Linux x86_64" || $(SMALL_XGBOOST) || true
	@$(INSTALL) --editable ".[dice,spark,dp,serve,parquet,plots,dev]"
	@# NICEx pins old releases of numpy and pandas but runs on current ones.
	@$(INSTALL) --no-deps NICEx==0.2.3
	@touch $@

$(AXE): tests/browser/package-lock.json
	@! command -v npm >/dev/null || $(NPM) >/dev/null || echo "axe-core cannot be installed; its tests will be skipped" >&2

demo: $(READY)
	@$(BIN)/cfk demo

# What Python and pytest compile is kept, whatever the environment says: workers and later runs need not do it again.
test slow core coverage: export PYTHONDONTWRITEBYTECODE :=

# A file stays with one worker, so that what its tests share is made once.
test: $(READY) $(AXE)
	@$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --benchmark-skip

slow: $(READY) $(AXE)
	@$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist worksteal --benchmark-skip

bench: $(READY)
	@$(BIN)/python -m pytest --benchmark-only -p no:randomly -p no:xdist -rN

# One process and a fixed order.
coverage: $(READY) $(AXE)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -m "not slow" -p no:xdist -p no:randomly --hypothesis-seed=0 --benchmark-skip
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

# Code blocks of pages fit the site: 88 columns.
PAGES := README.md $(shell find docs -name "*.md")

check: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/ruff format --check --line-length 88 $(PAGES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(BIN)/ruff format --line-length 88 $(PAGES)

# What would be published: built, checked, and installed where nothing else is.
EMPTY := $(VENV)/empty/bin
dist: $(READY)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist >/dev/null
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@$(UV) venv --quiet --clear --python $(PYTHON) $(VENV)/empty
	@$(UV) pip install --quiet --python $(EMPTY)/python dist/*.whl
	@cd dist && ../$(EMPTY)/cfk plugins && ../$(EMPTY)/cfk --help >/dev/null

# The core tests elsewhere: with the lowest version of each dependency, and on other Pythons with the newest ones. The
# lowest MLflow does not run on SQLAlchemy 2.1, which it permits.
CORE := $(addprefix tests/,data/test_schema.py data/test_population.py metrics/test_regions.py release/test_guarantees.py \
	release/test_recount.py release/test_explanations.py release/test_models.py release/test_other_tables.py \
	protection/test_catalogue.py protection/test_answers.py protection/test_lookup.py cli/test_cli.py)
OTHERS ?= lowest 3.12 3.13
core: $(READY)
	@for other in $(OTHERS); do \
		python=$(PYTHON) options="--resolution=lowest-direct sqlalchemy>=2,<2.1"; \
		if [ $$other != lowest ]; then \
			options= python=; \
			for each in python$$other $$HOME/.pyenv/versions/$$other.*/bin/python; do \
				$$each -c "import venv" 2>/dev/null && python=$$(command -v $$each); \
			done; \
			[ "$$python" ] || { echo "Python $$other is not at hand: its core tests are skipped"; continue; }; \
		fi; \
		echo "Core tests: $$other"; \
		$(UV) venv --quiet --clear --python $$python $(VENV)/core-$$other \
		&& $(UV) pip install --quiet $$options --python $(VENV)/core-$$other/bin/python ".[dp,serve,parquet,plots]" \
		&& $(UV) pip install --quiet --python $(VENV)/core-$$other/bin/python ".[dp,serve,parquet,plots,test]" \
		&& $(VENV)/core-$$other/bin/pytest -q -m "not slow" -n $(WORKERS) --dist loadfile $(CORE) || exit 1; \
	done

prose: $(READY)
	@$(BIN)/python tests/habits.py

# What renders docs/ comes on top of what is there. Warnings are errors: mkdocs.yml is strict.
$(VENV)/.docs: pyproject.toml
	@$(ENVIRONMENT)
	@$(INSTALL) --editable ".[docs]"
	@touch $@

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs
	@$(BIN)/python -m mkdocs build --quiet --config-file docs/site/mkdocs.yml
	@echo "build/site/index.html"

# Fails if there are any, so that a monthly job can call it. No test does: none may fail because time passes.
dates: $(READY)
	@$(BIN)/python docs/governance/check_dates.py

# Runs every experiment of the paper on the tables in the folder DATA, and writes results, page and plots.
reproduction: $(READY)
	@PYTHONPATH=docs $(BIN)/python -m reproduction.run $(DATA) $(OPTIONS)

clean:
	rm -rf $(VENV) build dist mlruns mlflow.db report.html .benchmarks .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache \
		tests/browser/node_modules
	find cfk_plugin adapters docs tests -name __pycache__ -type d -prune -exec rm -rf {} +
