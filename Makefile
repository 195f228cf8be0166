# SPDX-License-Identifier: Apache-2.0
# Each target sets up what it needs and can be the first one you run. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
# Number of parallel tests: tests of several processes spend much of their time waiting for each other.
TESTS := $(shell expr $(JOBS) + 1)
BUILD := build
PY := $(CURDIR)/.venv/bin/python
export PYTHONPATH := $(CURDIR)/python:$(CURDIR)
# With ccache, the same source in another folder (a wheel's) is compiled once. ccache does not support precompiled
# headers, so they are off then.
export CCACHE_BASEDIR := $(CURDIR)
CCACHE := $$(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)

.PHONY: help setup jax keras torchft torchtitan mxnet deepspeed nvrtc build core wheel demo test test-again test-full test-arm rtl-if-there lint fuzz rtl rtl-full rtl-lint rtl-cost rtl-prove docs chaos chaos-jobs chaos-members chaos-seeds tsan bench-codecs bench-engine bench-propose bench-groups bench-replay bench-plan bench-plan-policies bench-published bench-sync bench-wire bench-truth bench-strategies bench-auto bench-frameworks study study-optimizers study-adam study-members clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## installs the packages and the virtual environment
	@tools/setup.sh build

# One build folder, configured for everything or for the Python module alone; both share the compiled objects.
configure = cmake --preset $(1) $(CCACHE) \
  -DPython_EXECUTABLE=$(PY) >$(BUILD)-configure.log 2>&1 || { cat $(BUILD)-configure.log; exit 1; }; rm -f $(BUILD)-configure.log

build: setup ## builds the library, the command, the tests and the Python module
	@echo "build: $(BUILD)/ (release)"
	@$(call configure,release)
	@cmake --build $(BUILD) --parallel $(JOBS)

core: ## builds the Python module alone: enough for training
	@tools/setup.sh core
	@echo "build: $(BUILD)/ (the Python module)"
	@$(call configure,core)
	@cmake --build $(BUILD) --parallel $(JOBS) --target tithe_core

wheel: setup ## dist/: the source distribution, from it a wheel that contains UCX, and numpy's wheel: everything for a machine without network (docs/start/install.md)
	@$(PY) tools/wheel.py

demo: ## trains Fashion-MNIST on 4 ranks behind 100 Mbit/s links: LINK= QUEUE= RANKS= SEEDS= EPOCHS= DATA= CARD=1 MODEL=hdc or fsdp
	@tools/setup.sh demo
	@$(MAKE) --no-print-directory $(if $(CARD),build,core)
	@exec $(PY) demo/run.py

test: build jax keras torchft torchtitan mxnet deepspeed nvrtc ## every test; large products of lists are reduced so that every pair occurs
	@ctest --test-dir $(BUILD) --output-on-failure --parallel $(TESTS)
	@$(MAKE) --no-print-directory rtl-if-there

rtl-if-there:
	@if tools/setup.sh build rtl; then $(MAKE) --no-print-directory rtl; else echo 'test: no Verilator, so the benches of card/rtl/ did not run'; fi

test-again: ## runs the tests that failed in the last run, one after the other
	@ctest --test-dir $(BUILD) --output-on-failure --rerun-failed
	@$(MAKE) --no-print-directory rtl-if-there

jax keras torchft torchtitan mxnet deepspeed: # environments for tests of frameworks beside torch, if they can be installed
	@tools/setup.sh $@ || echo 'test: $@ does not install here, so its tests are skipped'

nvrtc: # NVIDIA's compiler, if it can be installed
	@tools/setup.sh nvrtc || echo 'test: NVRTC does not install here, so it compiles no kernels'

test-full: build jax keras torchft torchtitan mxnet deepspeed nvrtc ## every test over the whole products: before a release
	@TITHE_TEST_FULL=1 ctest --test-dir $(BUILD) --output-on-failure --parallel $(TESTS)

test-arm: ## golden frames and codecs on arm64, cross-compiled and emulated; not in `make test`: FILTER=golden
	@tools/setup.sh build arm
	@cmake --preset arm $(CCACHE) >/dev/null
	@cmake --build --preset arm --parallel $(JOBS) --target processor_tests
	@ctest --test-dir build/arm --output-on-failure --no-tests=error --parallel $(JOBS) $(if $(FILTER),-R '$(FILTER)')

rtl: build ## the card's engine in simulation, each module's bench: FLOATS=1000000 MUTANTS=10000 SEED= WAVES=1 (card/docs/card_rtl.md)
	@tools/setup.sh build rtl
	@$(MAKE) --no-print-directory -C card/rtl -j $(JOBS) -O run BUILD=$(CURDIR)/$(BUILD)

rtl-full: ## the same with 10^7 values for each engine and width, and 10^6 mutated frames over the card's widths
	@$(MAKE) --no-print-directory rtl FLOATS=10000000 MUTANTS=250000

rtl-lint: ## Verilator's -Wall and slang on the engine, at every width
	@tools/setup.sh rtl rtl-tools
	@.setup/rtl-venv/bin/python card/rtl/lint.py

rtl-cost: ## LUTs, registers, memory and clock by width, for ECP5 and Virtex-7; hours for all: ONLY=compress-64,card-256 SEEDS=1 LIMIT=25 PLACES=1
	@tools/setup.sh rtl-tools
	@.setup/rtl-venv/bin/python card/rtl/cost.py --only "$(ONLY)" --seeds $(or $(SEEDS),1) --limit $(or $(LIMIT),25) $(if $(PLACES),--places-alone)

rtl-prove: ## proofs of the small modules, and mutations that they refuse: ONLY=
	@tools/setup.sh rtl-tools
	@.setup/rtl-venv/bin/python card/rtl/prove.py --only "$(ONLY)"

lint: ## format, static analysis, floors, documents
	@tools/setup.sh build lint docs
	@$(MAKE) --no-print-directory build
	@tools/lint/lint.sh

docs: ## a site of all documents that can be searched: build/docs/site/index.html
	@tools/setup.sh docs
	@$(PY) tools/make_docs.py

fuzz: ## libFuzzer on every decoder and reader: TARGETS= SECONDS_EACH=600 JOBS= KEEP=1 (tests/fuzz/README.md)
	@tools/setup.sh build fuzz
	@cmake --preset fuzz $(CCACHE) >/dev/null
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzz_binaries
	@JOBS=$(JOBS) tools/fuzz_all.sh

chaos-seeds: build ## 100,000 seeded worlds of ranks, delays and faults: SEEDS= FIRST= JOBS= (tests/chaos/README.md)
	@export TITHE_CHAOS_SEEDS=$(or $(SEEDS),100000) TITHE_CHAOS_FIRST=$(or $(FIRST),1) GTEST_TOTAL_SHARDS=$(JOBS); \
	  for ((i = 0; i < $(JOBS); ++i)); do \
	    GTEST_SHARD_INDEX=$$i $(BUILD)/tests/chaos_tests --gtest_brief=1 & all+=($$!); \
	  done; \
	  status=0; for one in "$${all[@]}"; do wait "$$one" || status=1; done; exit $$status

chaos: chaos-jobs chaos-members ## kills, freezes and disconnects real processes in network namespaces: both tables

chaos-jobs: build ## jobs that end after a fault; writes lab/results/chaos.md: ONLY= OUT= TRANSPORT= (tests/chaos/README.md)
	@$(PY) tests/chaos/hosts/matrix.py --rank $(CURDIR)/$(BUILD)/tests/chaos_rank --only "$(ONLY)" \
	  $(if $(TRANSPORT),--transport $(TRANSPORT)) --out $(or $(OUT),$(if $(ONLY)$(TRANSPORT),/dev/stdout,lab/results/chaos.md))

chaos-members: build ## jobs that continue after a fault; writes lab/results/chaos_members.md: ONLY= OUT=; in several runs: RAW=file FOR=seconds
	@$(PY) tests/chaos/hosts/members.py --rank $(CURDIR)/$(BUILD)/tests/chaos_member --only "$(ONLY)" \
	  $(if $(RAW),--raw $(RAW)) $(if $(FOR),--for $(FOR)) --out $(or $(OUT),$(if $(ONLY),/dev/stdout,lab/results/chaos_members.md))

# UCX is not built for ThreadSanitizer, which reports its waiting as races: its transports are left out.
TSAN_TESTS := Session.*:*TransportSuite*/loop:*FailureSuite*/ring_3_lanes2:*FailureSuite*/gather_3_lanes2:Chaos*
tsan: ## sessions, transports and seeded worlds under ThreadSanitizer
	@tools/setup.sh build
	@cmake --preset tsan $(CCACHE) -DTITHE_BENCH=OFF >/dev/null
	@cmake --build --preset tsan --parallel $(JOBS) --target threads_tests
	@UCX_MEM_EVENTS=no UCX_MEM_MMAP_HOOK_MODE=none TITHE_CHAOS_SEEDS=$(or $(SEEDS),100) $(BUILD)/tsan/tests/threads_tests --gtest_brief=1 --gtest_filter='$(TSAN_TESTS)'

bench-codecs: build ## paired speed ratios of every codec with the machine's best target and AVX2, and with two threads: ROUNDS=21 OUT= WITH=
	@{ $(WITH) $(BUILD)/lab/bench/bench_codecs --rounds=$(or $(ROUNDS),21) && echo && \
	   $(WITH) $(BUILD)/lab/bench/bench_codecs --scaling --rounds=$(or $(ROUNDS),21); } $(if $(OUT),| tee $(OUT))

bench-engine: build ## the engine's own CPU time per step, on BERT-base's list: RANKS=2,4,16,64
	@$(BUILD)/lab/bench/bench_engine --ranks $(or $(RANKS),2,4,16,64)

bench-replay: build ## two tables of `tithe replay` on emulated hosts, as root: hidden time, and the gain of each feature: PASSES=3 OUT=folder
	@for table in hidden breakdown; do $(PY) lab/bench/replay_tables.py $$table --passes $(or $(PASSES),3) $(if $(OUT),--out $(OUT)/replay_$$table.md) || exit 1; done

bench-published: build ## gains that papers published, beside those of `tithe simulate` on their testbeds: ONLY=hipress_ec2 OUT=
	@$(PY) lab/bench/published.py $(if $(ONLY),--only $(ONLY)) $(if $(OUT),--out $(OUT))

bench-plan: build ## compares plans with the best found by hand, on emulated hosts, as root: LINKS= MODELS= RESUME=1 FOR=seconds OUT=
	@$(PY) lab/bench/plan_by_hand.py $(if $(LINKS),--links $(LINKS)) $(if $(MODELS),--models $(MODELS)) $(if $(RESUME),--resume) \
	  $(if $(FOR),--for $(FOR)) $(if $(OUT),--out $(OUT))

bench-plan-policies: build ## the planner's policies on the testbeds of four papers, simulated: OUT=
	@$(PY) lab/bench/plan_policies.py $(if $(OUT),--out $(OUT))

bench-groups: build ## a model's small tensors as groups and alone, beside one message of the same bytes: MODEL= RANKS=4
	@$(BUILD)/lab/bench/bench_groups --ranks $(or $(RANKS),4) $(if $(MODEL),--model $(MODEL))

bench-propose: build ## the cost of new choices to a running job: steps while they are built and at the switch
	@$(BUILD)/lab/bench/bench_propose
	@$(BUILD)/lab/bench/bench_propose --from fp8 --to fp32
	@$(BUILD)/lab/bench/bench_propose --from fp32 --to fp8

bench-sync: build ## fp32 all-reduces of Gloo, OpenMPI and tithe in turn, 4 ranks: LINKS=tcp,memory,1gbit,100mbit SIZES=64KB,1MB,25MB,100MB OUT=
	@tools/setup.sh build mpi || echo 'bench-sync: no OpenMPI, so its column stays empty'
	@$(PY) lab/bench/gloo_vs_tithe.py $(if $(LINKS),--links $(LINKS)) $(if $(SIZES),--sizes $(SIZES)) $(if $(OUT),| tee $(OUT))

bench-wire: core ## the share of a link that a round uses: strategies x codecs x sizes x hosts x links x queues, as root: MINUTES=15 (0: all cells) HOSTS= LINKS= OUT=
	@$(PY) lab/bench/wire.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(HOSTS),--hosts $(HOSTS)) $(if $(LINKS),--links $(LINKS)) $(if $(OUT),--write $(OUT))

bench-truth: build ## compares predicted and measured steps on emulated hosts, as root: LINKS= HOSTS= MODELS= CODECS= RESUME=1 FOR=seconds OUT=
	@$(PY) lab/bench/truth.py $(if $(LINKS),--links $(LINKS)) $(if $(HOSTS),--hosts $(HOSTS)) $(if $(MODELS),--models $(MODELS)) \
	  $(if $(CODECS),--codecs $(CODECS)) $(if $(RESUME),--resume) $(if $(FOR),--for $(FOR)) $(if $(OUT),--out $(OUT))

bench-strategies: core ## strategy auto beside each strategy that it may choose, on emulated hosts, as root: PLACES=2,2x2 LINKS= CODECS= MB= ROUNDS= OUT=
	@$(PY) lab/bench/strategies.py $(if $(PLACES),--places $(PLACES)) $(if $(LINKS),--links $(LINKS)) $(if $(CODECS),--codecs $(CODECS)) \
	  $(if $(MB),--megabytes $(MB)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(OUT),--write $(OUT))

bench-auto: core ## codec auto: steps until a plan, and until a plan for a changed link, on emulated hosts, as root: CASES= STEPS= ALLOW= OUT=
	@$(PY) lab/bench/auto.py $(if $(CASES),--cases $(CASES)) $(if $(STEPS),--steps $(STEPS)) $(if $(ALLOW),--allow $(ALLOW)) $(if $(OUT),--write $(OUT))

bench-frameworks: core jax keras mxnet deepspeed ## each framework: its tests, accuracy and time beside its own all-reduce, on emulated hosts, as root: ONLY= LINK= STEPS= OUT=
	@$(PY) lab/bench/frameworks.py $(if $(ONLY),--only $(ONLY)) $(if $(LINK),--link $(LINK)) $(if $(STEPS),--steps $(STEPS)) $(if $(OUT),--write $(OUT))

study: ## the accuracy of each codec: SEEDS= EPOCHS= CODECS= RESUME= DATA= OUT=
	@tools/setup.sh demo
	@$(MAKE) --no-print-directory core
	@exec $(PY) -m lab.study.accuracy

study-optimizers: ## the codecs that keep the accuracy under momentum and AdamW: SEEDS= CODECS= OPTIMIZERS= JOBS= RESUME= RATES= OUT=
	@tools/setup.sh demo
	@$(MAKE) --no-print-directory core
	@exec $(PY) -m lab.study.optimizers

study-adam: ## the fewest bits that AdamW and SGD 0.9 accept in longer runs, and the gain of tithe's own optimizers: PARTS= ARMS= SEEDS= SHARE= JOBS= RESUME= OUT=
	@tools/setup.sh demo
	@$(MAKE) --no-print-directory core
	@exec $(PY) -m lab.study.adam

study-members: ## the cost of losing and regaining ranks every 30 s: SEEDS= STEPS= EVERY= RESUME= DATA= OUT=
	@tools/setup.sh demo
	@$(MAKE) --no-print-directory core
	@exec $(PY) -m lab.study.elastic

clean: ## removes the build (not .venv)
	@rm -rf $(BUILD) build-wheel python/tithe/*.so
