# make demo   the whole experiment at demo scale; the report's place is printed at the end
# make test   style, types and tests
# make test-faults   kills, full disks, damaged files, failing downloads, and a real Slurm, which
#                    it starts itself: as root, with Debian's slurmctld, slurmd, slurm-client and
#                    munge; what is missing is skipped
# make docs   the documentation site, in site/, with the Python interface; a broken link is an error
# make configuration   docs/configuration.md and workflow/schemas/config.schema.json, after a change
#                      of src/scsigmoid/config/schema.py
# .ci/versions tests the oldest and the newest versions of the dependencies.
# All make the environment (.venv) first, if need be.
PYTHON ?= python3
VENV ?= .venv
CORES ?= all
BIN := $(VENV)/bin
READY := $(VENV)/.ready

PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-faults style docs configuration environment clean

demo: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --cores $(CORES) --config preset=demo
	@echo "Open $(CURDIR)/results/demo/report.html"

test: style
	PATH="$(CURDIR)/$(BIN):$$PATH" pytest -m "not gpu and not faults" $(PARALLEL) $(PYTEST)

test-faults: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" pytest -m faults $(PARALLEL) $(PYTEST)

style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" snakemake --lint

docs: $(READY)
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -q docs site

configuration: $(READY)
	$(BIN)/python docs/configuration_page.py > docs/configuration.md
	$(BIN)/python docs/configuration_page.py --schema > workflow/schemas/config.schema.json

environment: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	@echo "Installing the environment into $(VENV): several GB and minutes, once"
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[test]'
	$(BIN)/pip install --quiet --no-deps --target $(VENV)/triton-3.6.0 triton==3.6.0
	touch $(READY)

clean:
	rm -rf $(VENV) results/demo site jupyter_execute .snakemake
