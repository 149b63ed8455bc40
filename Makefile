# Two commands do all the set-up: `make demo` and `make test`. Both need Python 3.11 or newer and the network once.
#   PYTHON=python3.12 make demo          another interpreter than the first that is new enough
#   UV=uv make test                      installed by uv, which is quicker than pip
#   LOCKED=1 make test                   with the very versions of requirements-dev.lock
#   STEPSIM_SHARED=/data make validate   where the measured cases lie (default ../shared)

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11 python3 python3.12 python3.13 python3.14
VENV := .venv
BIN := $(VENV)/bin
export STEPSIM_SHARED ?= ../shared
# Where byte-code may not be kept, each of the suite's hundreds of processes compiles what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

# What installs into environment $(1). uv takes seconds where pip takes a minute, and is not on every machine.
ifdef UV
install = $(UV) pip install --quiet --python $(1)
else
install = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
endif

SCENARIO := llama3.1-405b-16k
TIMELINE := out/$(SCENARIO).svg
CASES = $(sort $(wildcard $(STEPSIM_SHARED)/data/cases/*.yaml $(STEPSIM_SHARED)/data/second/cases/*.yaml))
KERNEL_TABLES = $(addprefix $(STEPSIM_SHARED)/data/kernel_tables/,gemm.csv attention_forward.csv)
ONE_HOST = $(STEPSIM_SHARED)/data/kernel_tables/nccl_one_node.csv
NCCL_LOGS = $(sort $(wildcard $(STEPSIM_SHARED)/data/nccl_logs/*.txt $(STEPSIM_SHARED)/data/second/nccl_logs/*.txt))

.PHONY: help demo site test test-fast test-ray check check-style check-types check-types-of-tests fuzz fuzz-importers validate fit residuals gallery reliability docs benchmarks lock \
  dist clean

help: ## show these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/.installed ## install, then predict Llama 3.1 405B on 16,384 GPUs
	$(BIN)/stepsim run $(SCENARIO) --timeline $(TIMELINE)

test: check ## install, then lint, check types and run the whole test suite
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-fast: $(VENV)/.installed-test ## install, then run the suite without the tests that take minutes
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow"

# In a copy of the environment: ray brings 70 MB, and versions of what others need too.
test-ray: .venv-ray/.installed-ray ## install ray beside that, then run plans over a local cluster of two nodes
	.venv-ray/bin/python -m pytest tests/test_plan_ray.py

.venv-ray/.installed-ray: $(VENV)/.installed-test
	rm -rf .venv-ray
	cp -al $(VENV) .venv-ray
	$(call install,.venv-ray) --editable '.[cluster]'
	@touch $@

check: check-style check-types check-types-of-tests

check-style: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-types: $(VENV)/.installed-test
	$(BIN)/mypy

check-types-of-tests: $(VENV)/.installed-test
	$(BIN)/mypy --config-file tests/mypy.ini

SECONDS := 120
SEED := 0
fuzz: $(VENV)/.installed-test ## look for inputs that break a command, for SECONDS=120 from SEED=0; keep them in out/fuzz
	$(BIN)/python tests/fuzz/search.py --seconds $(SECONDS) --seed $(SEED)

COUNT := 100000
CONFIGS = $(wildcard $(STEPSIM_SHARED)/data/configs)
fuzz-importers: $(VENV)/.installed-test ## import COUNT=100000 wrong files of other frameworks; keep what breaks in out/fuzz
	$(BIN)/python tests/fuzz/importers.py --count $(COUNT) --seed $(SEED) $(addprefix --configs ,$(CONFIGS))

validate: $(VENV)/.installed ## predict every measured case and collective; rewrite docs/accuracy.md, docs/collectives.md
	@test -n "$(CASES)" || { echo "no measured cases in $(STEPSIM_SHARED)/data/cases: set STEPSIM_SHARED" >&2; exit 2; }
	$(BIN)/stepsim validate --nccl $(NCCL_LOGS) $(ONE_HOST) --leave-out --markdown docs/collectives.md
	$(BIN)/stepsim validate --kernels $(KERNEL_TABLES) $(STEPSIM_SHARED)/data/kernels.yaml --markdown docs/kernel-errors.md
	$(BIN)/stepsim validate $(CASES) $(addprefix --held-out ,$(wildcard docs/step-fit.json)) --markdown docs/accuracy.md \
	  --svg docs/accuracy.svg --append docs/collectives.md

# What ships with a value fitted on step times. Without --near and these, all constants are searched from nothing.
FITTED := $(addprefix --gpu ,A100-SXM4-80GB H100-SXM5-80GB B200-SXM-180GB GB200-NVL72 \
  GB300-NVL72) $(addprefix --software ,nanotron-2024 megatron-core-2025 bigscience-2022)
fit: $(VENV)/.installed ## fit what only step times show, and on either half of the families; rewrite docs/step-fit.md
	@test -n "$(CASES)" || { echo "no measured cases in $(STEPSIM_SHARED)/data/cases: set STEPSIM_SHARED" >&2; exit 2; }
	$(BIN)/stepsim calibrate steps $(CASES) --near $(FITTED) --markdown docs/step-fit.md --save docs/step-fit.json

residuals: $(VENV)/.installed ## leave regions out of fits and steps out of families; rewrite what intervals read
	@test -n "$(CASES)" || { echo "no measured cases in $(STEPSIM_SHARED)/data/cases: set STEPSIM_SHARED" >&2; exit 2; }
	$(BIN)/stepsim calibrate residuals --kernels $(STEPSIM_SHARED)/data/kernels.yaml $(addprefix --log ,$(NCCL_LOGS)) --write
	$(BIN)/stepsim calibrate residuals $(CASES) --held-out docs/step-fit.json --write

gallery: $(VENV)/.installed ## rewrite docs/schedules.md and its pictures
	$(BIN)/stepsim schedule gallery docs/schedules.md

reliability: $(VENV)/.installed ## simulate closed forms and published cases of failures; rewrite docs/reliability.md
	$(BIN)/stepsim faults --cases docs/reliability.md $(addprefix --straggler-logs ,$(wildcard $(STEPSIM_SHARED)/data/traces/straggler))

docs: $(VENV)/.installed ## rewrite what README and docs repeat of the program's output (after validate, which it reads)
	$(BIN)/python docs/remake.py
	$(BIN)/python docs/variation_picture.py
	$(BIN)/python docs/architecture_picture.py
	$(BIN)/python docs/reference_pages.py
	$(BIN)/python docs/sources_page.py
	$(BIN)/python docs/unseen_page.py

site: $(VENV)/.installed-test ## build the documentation as a site in out/site
	$(BIN)/mkdocs build --strict --quiet

benchmarks: $(VENV)/.installed ## time the program on this machine; rewrite docs/speed.md, docs/others.md
	$(BIN)/python benchmarks/run.py --markdown docs/speed.md
	$(BIN)/python benchmarks/others.py --markdown docs/others.md

# One file for every Python of the matrix and every platform; `make ... LOCKED=1` installs by it.
LOCK := requirements-dev.lock
lock: $(VENV)/.installed-test ## pin what development needs, with hashes, as requirements-dev.lock
	$(call install,$(VENV)) uv
	$(BIN)/uv pip compile pyproject.toml --extra test --extra dev --extra page --universal --generate-hashes --upgrade \
	  --python-version 3.11 --no-annotate --quiet --custom-compile-command 'make lock' --output-file $(LOCK)

dist: $(VENV)/.installed-test ## build wheel and sdist of the last commit in dist, the same bytes for everyone
	$(BIN)/python .ci/build_dist.py

clean: ## remove everything that was built
	rm -rf $(VENV) .venv-torch .venv-ray out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The stamps make repeated calls quick; a changed pyproject.toml installs anew.
$(VENV)/bin/python:
	@for python in $(PYTHON); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$($$python -V)"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "stepsim needs Python 3.11 or newer; none of these is: $(PYTHON)." >&2; \
	echo "Name yours: PYTHON=/path/to/python make $(MAKECMDGOALS)" >&2; exit 2

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(call install,$(VENV)) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml
ifdef LOCKED
	$(call install,$(VENV)) --require-hashes -r $(LOCK)
	$(call install,$(VENV)) --no-deps --no-build-isolation --editable .
else
	$(call install,$(VENV)) --editable '.[test,dev]'
endif
	@touch $@ $(VENV)/.installed
