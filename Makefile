# Two commands do everything: `make demo` and `make test`. The rest is for those who change the code.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
VENV_VLLM ?= $(CURDIR)/.venv-vllm
BIN := $(VENV)/bin
DEBIAN_PACKAGES := prometheus prometheus-alertmanager chromium npm
SCENARIO ?= thursday
SPEED ?= 60
DAYS ?= 30

.PHONY: help demo test test-fast test-vllm lint check render bench deps setup clean

help: ## this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: setup ## set up and watch a simulated cluster begin to thrash, seen by the ordinary service (SCENARIO=…, SPEED=…, DAYS=…)
	@_RJEM_MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0 $(BIN)/lora-watch demo --scenario $(SCENARIO) --speed $(SPEED) --days $(DAYS)

test: setup deps ## set up, the Debian packages included, and run every test but those of the real vLLM
	$(BIN)/pytest -m "not vllm" -n $(WORKERS) --dist loadfile

test-fast: setup ## the tests that take no more than a few seconds each
	$(BIN)/pytest

test-vllm: setup ## the real vLLM in an environment of its own, with the agent inside
	LORA_WATCH_VLLM_VENV=$(VENV_VLLM) $(BIN)/pytest -m vllm tests/vllm

lint: setup ## format, lint, types, import rules, freshness of what is generated
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: lint test-fast ## everything that must hold before a commit

render: setup ## write the files that are generated from the code
	$(BIN)/python -m lora_watch.render

bench: setup ## measure what benchmarks/README.md claims (installs the real vLLM; an hour)
	$(BIN)/python benchmarks/agent_cost.py hooks
	$(BIN)/python benchmarks/replay_speed.py
	$(BIN)/python benchmarks/backtest_study.py
	$(BIN)/python benchmarks/recommend_speed.py artifacts/recommend
	$(BIN)/python benchmarks/derive_scale.py
	$(BIN)/python benchmarks/simulate_speed.py
	$(BIN)/python benchmarks/locality_accuracy.py
	$(BIN)/python benchmarks/what_if_accuracy.py --hours 1
	$(BIN)/python benchmarks/attribution_study.py --runs 10 --hours 3
	$(BIN)/python benchmarks/residency_coverage.py --windows 200 --days 2
	$(BIN)/python benchmarks/demo_memory.py --seconds 180
	$(BIN)/python benchmarks/detection_study.py --out artifacts/detection_study.jsonl
	bash tests/vllm/install.sh $(VENV_VLLM)
	test -d $(VENV_VLLM)/tiny || $(VENV_VLLM)/bin/python tests/vllm/make_model.py $(VENV_VLLM)/tiny 12
	rm -rf $(VENV_VLLM)/wheel $(VENV_VLLM)/site
	$(BIN)/python -m hatchling build -t wheel -d $(VENV_VLLM)/wheel
	$(VENV_VLLM)/bin/pip install -q --no-deps --target $(VENV_VLLM)/site $(VENV_VLLM)/wheel/*.whl
	$(BIN)/python benchmarks/agent_cost.py pairs --venv $(VENV_VLLM) --model $(VENV_VLLM)/tiny --site $(VENV_VLLM)/site

deps: ## install the Debian packages that tests talk to, where this is allowed
	@missing=""; for p in $(DEBIAN_PACKAGES); do command -v $$p >/dev/null || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else \
	  echo "tests need these programs:$$missing"; \
	  echo "install them as root: apt-get install --no-install-recommends$$missing"; exit 1; \
	fi

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Say which: make PYTHON=python3.12 …"; exit 1; }
	@rm -f $@
	@echo "installing what is needed into $(VENV) (about a minute, once)"
	@if command -v uv >/dev/null; then \
	  uv venv -q --allow-existing --python "$$(command -v $(PYTHON))" $(VENV) \
	  && uv pip install -q --python $(BIN)/python --require-hashes -r requirements.lock \
	  && uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	    || { echo "Python's venv is missing: install it with \`apt-get install python3-venv\` (or install uv), then try again"; exit 1; }; \
	  $(PYTHON) -m venv $(VENV) \
	  && $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock \
	  && $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@echo "compiling the simulator (half a minute, once)"
	@rm -rf $(VENV)/compiled && $(BIN)/lora-watch simulate --scenario thursday --days 0.01 --out $(VENV)/compiled >/dev/null \
	  && rm -rf $(VENV)/compiled
	@touch $@

clean: ## remove the environments and caches
	rm -rf $(VENV) .venv-vllm .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
