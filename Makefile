# SPDX-License-Identifier: Apache-2.0
# Each target sets up what it needs and can be the first one you run. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
BUILD := build
PY := $(CURDIR)/.venv/bin/python
export PYTHONPATH := $(CURDIR)/python

.PHONY: help setup build demo test lint fuzz chaos chaos-seeds tsan bench-codecs bench-sync study study-optimizers clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## installs the packages and the virtual environment
	@tools/setup.sh build

build: setup ## builds the library, the command, the tests and the Python module
	@echo "build: $(BUILD)/ (release)"
	@cmake --preset release $$(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) \
	  -DPython_EXECUTABLE=$(PY) >$(BUILD)-configure.log 2>&1 || { cat $(BUILD)-configure.log; exit 1; }
	@rm -f $(BUILD)-configure.log
	@cmake --build $(BUILD) --parallel $(JOBS)

demo: ## trains Fashion-MNIST on 4 ranks behind 100 Mbit/s links: LINK= RANKS= SEEDS= EPOCHS= DATA=
	@tools/setup.sh build demo
	@$(MAKE) --no-print-directory build
	@exec $(PY) demo/run.py

test: build ## every test
	@ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)
	@$(PY) -m pytest -q tests/python tests/cli

lint: ## format, static analysis, floors, documents
	@tools/setup.sh build lint
	@$(MAKE) --no-print-directory build
	@tools/lint/lint.sh

fuzz: ## libFuzzer on every decoder and reader: TARGETS= SECONDS_EACH=600 JOBS= KEEP=1 (tests/fuzz/README.md)
	@tools/setup.sh build fuzz
	@cmake --preset fuzz $$(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) >/dev/null
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzz_binaries
	@JOBS=$(JOBS) tools/fuzz_all.sh

chaos-seeds: build ## 100,000 seeded worlds of ranks, delays and faults: SEEDS= FIRST= JOBS= (tests/chaos/README.md)
	@export TITHE_CHAOS_SEEDS=$(or $(SEEDS),100000) TITHE_CHAOS_FIRST=$(or $(FIRST),1) GTEST_TOTAL_SHARDS=$(JOBS); \
	  for ((i = 0; i < $(JOBS); ++i)); do \
	    GTEST_SHARD_INDEX=$$i $(BUILD)/tests/chaos_tests --gtest_brief=1 & all+=($$!); \
	  done; \
	  status=0; for one in "$${all[@]}"; do wait "$$one" || status=1; done; exit $$status

chaos: build ## kills, freezes and cuts off real processes in network namespaces: ONLY= OUT= (tests/chaos/README.md)
	@$(PY) tests/chaos/hosts/matrix.py --rank $(CURDIR)/$(BUILD)/tests/chaos_rank --only "$(ONLY)" \
	  --out $(or $(OUT),$(if $(ONLY),/dev/stdout,bench/results/chaos.md))

# UCX is not built for ThreadSanitizer, which takes its waiting for races: its kinds are left out.
TSAN_TESTS := Session.*:*TransportSuite*/loop:*FailureSuite*/ring_3_lanes2:*FailureSuite*/gather_3_lanes2:Chaos*
tsan: ## sessions, transports and seeded worlds under ThreadSanitizer
	@tools/setup.sh build
	@cmake --preset tsan $$(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) -DTITHE_BENCH=OFF >/dev/null
	@cmake --build --preset tsan --parallel $(JOBS) --target threads_tests
	@UCX_MEM_EVENTS=no UCX_MEM_MMAP_HOOK_MODE=none TITHE_CHAOS_SEEDS=$(or $(SEEDS),300) $(BUILD)/tsan/tests/threads_tests --gtest_brief=1 --gtest_filter='$(TSAN_TESTS)'

bench-codecs: build ## paired speed ratios of every codec, the machine's best and AVX2, and two threads beside one: ROUNDS=21 OUT= WITH=
	@{ $(WITH) $(BUILD)/bench/bench_codecs --rounds=$(or $(ROUNDS),21) && echo && \
	   $(WITH) $(BUILD)/bench/bench_codecs --scaling --rounds=$(or $(ROUNDS),21); } $(if $(OUT),| tee $(OUT))

bench-sync: build ## fp32 rounds of 25M values on 4 ranks of this machine, in turn with Gloo's all-reduce
	@$(PY) bench/gloo_vs_tithe.py

study: ## what each codec costs in accuracy: SEEDS= EPOCHS= CODECS= RESUME= DATA= OUT=
	@tools/setup.sh build demo
	@$(MAKE) --no-print-directory build
	@exec $(PY) demo/study.py

study-optimizers: ## which codecs hold under momentum and AdamW: SEEDS= CODECS= OPTIMIZERS= JOBS= RESUME= RATES= OUT=
	@tools/setup.sh build demo
	@$(MAKE) --no-print-directory build
	@exec $(PY) demo/study_optimizers.py

clean: ## removes what was built (not .venv)
	@rm -rf $(BUILD) python/tithe/*.so
