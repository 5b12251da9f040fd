# Needs Python 3.11+ and make; each target installs the rest into .venv or .matrix.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SHARD  := 1/1
CASES  :=
# a few quick files of each package
SMOKE  := tests/records tests/run tests/reading tests/symbols tests/test_neutral.py tests/test_exported_members.py \
  $(addprefix tests/comptime/test_,conversations.py shown_values.py comptime.py) \
  $(addprefix tests/guards/test_,causes.py value.py limits.py) $(addprefix tests/effects/test_,record.py tables.py) \
  $(addprefix tests/saved/test_,codecs.py copies.py) $(addprefix tests/pgo/test_,merge.py warm_start.py) \
  $(addprefix tests/cudagraphs/test_,transforms.py emulator.py kept_tensors.py) \
  $(addprefix tests/cli/test_,run_code.py targets.py arguments.py) $(addprefix tests/fix/test_,rewrites.py judge.py) \
  $(addprefix tests/advice/test_,programs.py findings.py) $(addprefix tests/report/test_,terminal.py record.py html.py) \
  tests/trace/test_both_directions.py tests/seam/test_capabilities.py

.PHONY: demo smoke test test-all lint types contracts notebooks matrix matrix-smoke fuzz fuzz-torch fuzz-graphs fuzz-runs fuzz-verdicts fuzz-checks fuzz-codecs fuzz-what-ifs stress mutations faults threads wide-ids laws rules advice follow tried labels bench ci clean

demo: $(READY)
	$(BIN)/dynx demo

# Half a minute: would notice that a package does not work at all.
smoke: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --cases 3 $(SMOKE)

# 5 minutes on two quiet cores: up to three cases of each test, without the tests marked slow. Tests that need a GPU are deselected
# where there is none.
test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" --cases 3

# All tests, or a part: `make test-all SHARD=1/4` runs the first of four parts, `make test-all CASES=20` up to 20 cases of each test.
test-all: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal --shard $(SHARD) $(CASES:%=--cases %)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports --config pyproject.toml

notebooks: $(READY)
	$(BIN)/jupytext --test --to ipynb notebooks/*.py
	$(BIN)/pytest --nbmake --nbmake-timeout 600 -p no:xdist notebooks/*.ipynb

# Injects calls at random lines of the standard library and torch, on Python 3.12, 3.13 and that of .venv.
PAIRS := 1000
CHANGES := 500
SEED  := 0
fuzz: $(READY) fuzz-3.12 fuzz-3.13
	$(BIN)/python tests/fuzz/rewrite.py --pairs $(PAIRS) --seed $(SEED) --torch

fuzz-%: .matrix/python-%/.ready
	PYTHONPATH=. .matrix/python-$*/bin/python tests/fuzz/rewrite.py --pairs $(PAIRS) --seed $(SEED)

.PRECIOUS: .matrix/python-%/.ready
.matrix/python-%/.ready: $(READY)
	$(BIN)/uv venv -q --allow-existing -p $* .matrix/python-$*
	VIRTUAL_ENV=.matrix/python-$* $(BIN)/uv pip install -q bytecode
	touch $@

# The same including torch's own code, on the Python versions that the tests do not run on (10 GB).
fuzz-torch: fuzz-torch-3.12 fuzz-torch-3.13

fuzz-torch-%: .matrix/python-torch-%/.ready
	PYTHONPATH=. .matrix/python-torch-$*/bin/python tests/fuzz/rewrite.py --pairs $(PAIRS) --seed $(SEED) --torch

.PRECIOUS: .matrix/python-torch-%/.ready
.matrix/python-torch-%/.ready: $(READY)
	$(BIN)/uv venv -q --allow-existing -p $* .matrix/python-torch-$*
	VIRTUAL_ENV=.matrix/python-torch-$* $(BIN)/uv pip install -q bytecode rich jinja2 torch==2.15.0
	touch $@

# Changes models after they were compiled, under torch's guards and under the dict tags that guards.profile can set.
mutations: $(READY)
	$(BIN)/python tests/fuzz/mutations.py --changes $(CHANGES) --seed $(SEED)

# Runs and trains random modules with and without CUDA graphs: values, gradients and aliasing have to be equal.
PROGRAMS := 300
DEVICE   := cpu
fuzz-graphs: $(READY)
	$(BIN)/python tests/fuzz/cudagraphs.py --programs $(PROGRAMS) --seed $(SEED) --device $(DEVICE)
	$(BIN)/python tests/fuzz/train_steps.py --programs $(PROGRAMS) --seed $(SEED) --device $(DEVICE)

# Shows, asserts and converts damaged and hostile run files.
MUTANTS := 5000
fuzz-runs: $(READY)
	$(BIN)/python tests/fuzz/run_files.py --mutants $(MUTANTS) --seed $(SEED)

# Random calls under random circumstances: what would_recompile says against what the call does.
CALLS := 1000
fuzz-verdicts: $(READY)
	$(BIN)/python tests/fuzz/verdicts.py --calls $(CALLS) --seed $(SEED)

# Random programs with and without what-ifs, which must be the same.
WHAT_IFS := 100
fuzz-what-ifs: $(READY)
	$(BIN)/python tests/fuzz/what_ifs.py --programs $(WHAT_IFS) --seed $(SEED)

# Random programs that hold state in many ways: what dynx.check says against a comparison by hand.
fuzz-checks: $(READY)
	$(BIN)/python tests/fuzz/checks.py --programs $(PROGRAMS) --seed $(SEED)

# Packs tensors with infinities, NaN, the largest and the smallest numbers with every codec of dynx.saved.
TENSORS := 10000
fuzz-codecs: $(READY)
	$(BIN)/python tests/fuzz/codecs_of_tensors.py --tensors $(TENSORS) --seed $(SEED) --device $(DEVICE)

# Interleaves CUDA graphs with other work on the GPUs: streams, devices, failed captures, graphs of others. Needs a GPU. Random
# numbers are compared with THREADS=1 only. PLANT=order_after_captures removes an order, which has to be found.
SECONDS_LONG := 300
THREADS := 2
PLANT :=
stress: $(READY)
	$(BIN)/python tests/fuzz/device_work.py --seconds $(SECONDS_LONG) --seed $(SEED) --threads $(THREADS) $(PLANT:%=--plant %)

# Mutation tests: plants one fault at a time in dynx.cudagraphs; its tests have to fail for each.
faults: $(READY)
	$(BIN)/python tests/faults/cudagraphs.py

# Reads and evicts cache entries a thousand times while other threads call the function.
CYCLES := 1000
threads: $(READY)
	DYNX_CYCLES=$(CYCLES) $(BIN)/python -m pytest -q tests/guards/test_threads.py

# The tests of all other packages while symbols are named by `symbols.install()`.
wide-ids: $(READY)
	DYNX_SYMBOLS=blake63 $(BIN)/pytest -n 2 --dist worksteal -m "not slow" --ignore tests/symbols --ignore tests/seam

# Merging profiles is commutative, associative, idempotent and equal to torch's own join: a thousand examples of each law.
laws: $(READY)
	DYNX_EXAMPLES=1000 $(BIN)/pytest -q tests/pgo/test_merge.py

# The list of rules in docs/rules/README.md.
rules: $(READY)
	$(BIN)/python docs/list_rules.py

# The findings of `dynx run` on programs as users write them, against labels: causes, lines, and changes that remove the cost.
advice: $(READY)
	$(BIN)/python benchmarks/advice/score.py

# Each printed alternative of the advice that is code, followed literally: none may raise, and no cost may grow.
FOLLOWED :=
follow: $(READY)
	$(BIN)/python benchmarks/advice/follow.py $(FOLLOWED)

# `dynx fix` on the same programs: which findings it fixes, whether the changed programs do the same, advice that a trial refutes.
TRIED :=
tried: $(READY)
	$(BIN)/python benchmarks/advice/fixes.py $(TRIED)

# Checks the labels themselves: counts of torch's own logs, and each change applied by script.
labels: $(READY)
	$(BIN)/python benchmarks/advice/truth.py benchmarks/advice/programs/*.py

bench: $(READY)
	$(BIN)/python benchmarks/observers.py
	$(BIN)/python benchmarks/what_ifs.py
	$(BIN)/python benchmarks/comptime.py
	$(BIN)/python benchmarks/guards.py
	$(BIN)/python benchmarks/symbols.py
	$(BIN)/python benchmarks/saved.py
	$(BIN)/python benchmarks/effects.py
	$(BIN)/python benchmarks/warm_start.py

# All tests on the oldest and the newest supported torch, each in its own environment (about 5 GB, cached by uv).
MATRIX := 2.11.0 2.15.0
matrix: $(MATRIX:%=matrix-%)
matrix-smoke: $(MATRIX:%=smoke-%)

matrix-%: .matrix/torch-%/.ready
	.matrix/torch-$*/bin/python -m pytest -n 2 --dist worksteal

smoke-%: .matrix/torch-%/.ready
	timeout 1200 .matrix/torch-$*/bin/python -m pytest -n 2 --dist worksteal -m "not slow" --cases 3 $(SMOKE) \
	  tests/trace tests/seam tests/test_doctor.py tests/test_watch.py

.PRECIOUS: .matrix/torch-%/.ready
.matrix/torch-%/.ready: pyproject.toml $(READY)
	$(BIN)/uv venv -q --allow-existing -p $(BIN)/python .matrix/torch-$*
	VIRTUAL_ENV=.matrix/torch-$* $(BIN)/uv pip install -q torch==$* transformers==5.23.0 rich bytecode jinja2 \
	  pytest==9.2.0 pytest-xdist hypothesis ipython setuptools libcst
	VIRTUAL_ENV=.matrix/torch-$* $(BIN)/uv pip install -q --no-deps -e .
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("dynx needs Python 3.11 or newer: make PYTHON=python3.11") if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' 2>&1 | grep -v 'is ignored: it is neither' || true
	$(BIN)/python -c 'import dynx, torch, pytest'
	touch $@

ci:
	bash .ci/run

clean:
	rm -rf $(VENV) .matrix .dynx
