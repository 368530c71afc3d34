# The commands of a checkout. PYTHON is the interpreter that creates .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := .types
PEERS := .peers
BEAM := .beam
RAY := .ray
TORCH := .torch
HUGGINGFACE := .huggingface
# Packages that Apache Beam requires in older versions than ours.
BEAM_OWN := pillow|protobuf|pyarrow|python-dateutil|sentencepiece
QUICKSTART := .quickstart
PAPER := .paper
PAPER_FLAGS ?=
SENTENCES := "forty-two" "twenty-one euros and five cents" \
  "in the year nineteen eighty-four"
PYTEST_FLAGS ?=
# Number of test processes; each needs memory for TensorFlow's models.
TEST_PROCESSES ?= 2

# Tests whose results depend on the kernels that the processor selects.
NUMERIC_TESTS := tests/model tests/decoding tests/interop tests/parsing \
  tests/serving/test_signatures.py tests/serving/test_export.py \
  tests/training/test_optimizers.py tests/training/test_trainer.py \
  tests/training/test_update.py

.DEFAULT_GOAL := help
.PHONY: help install quickstart paper test slowtest fuzz numerictest beamtest raytest torchtest huggingfacetest lint docs format bench clean

help: ## show this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

# Reinstall only if the requirements have changed.
$(STAMP): setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "t2t-lite needs Python 3.11-3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (TensorFlow is a large download) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(STAMP) ## create .venv with all dependencies

quickstart: $(STAMP) ## train, decode, score and export a small model, in minutes
	@echo "== 1/5  Training: numbers in English words, translated into German"
	$(BIN)/t2t-lite-trainer --problem=spellout_ende \
	  --hparams=transformer_quickstart --save_steps=100 \
	  --eval_steps_every=250 \
	  --data_dir=$(QUICKSTART)/data --output_dir=$(QUICKSTART)/run
	@echo; $(BIN)/python examples/learning_curve.py $(QUICKSTART)/run
	@echo; echo "== 2/5  Decoding three lines"
	printf '%s\n' $(SENTENCES) \
	  | $(BIN)/t2t-lite-decoder --output_dir=$(QUICKSTART)/run
	@echo; echo "== 3/5  Scoring the held-out test split"
	$(BIN)/t2t-lite-evaluator --output_dir=$(QUICKSTART)/run --split=test
	@echo; echo "== 4/5  Exporting"
	$(BIN)/t2t-lite-exporter --output_dir=$(QUICKSTART)/run \
	  --export_dir=$(QUICKSTART)/export
	@echo; echo "== 5/5  Translating with the export, TensorFlow and TF Text only"
	$(BIN)/python examples/ask_export.py $(QUICKSTART)/export $(SENTENCES)
	@echo; echo "Done. What to try next:"
	@echo "  source $(BIN)/activate"
	@echo "  t2t-lite-decoder --output_dir=$(QUICKSTART)/run --interactive"
	@echo "  tensorboard --logdir=$(QUICKSTART)/run"
	@echo "  t2t-lite-registry"
	@echo "  t2t-lite-trainer --problem=multi30k_ende --hparams=transformer_multi30k"
	@echo "  docs/get-started.md continues from here, docs/your-text.md with your own corpus."

paper: $(STAMP) ## reproduce the paper's table 3 at a reduced scale, in hours
	$(BIN)/python examples/paper/run.py --output_dir=$(PAPER) $(PAPER_FLAGS)

test: $(STAMP) ## run the test suite, in minutes
	$(BIN)/python -m pytest -m "not slow" --numprocesses=$(TEST_PROCESSES) \
	  --dist=loadfile $(PYTEST_FLAGS)

slowtest: $(STAMP) ## run the slow tests, which `make test` skips
	$(BIN)/python -m pytest -m slow --numprocesses=$(TEST_PROCESSES) \
	  --dist=loadfile $(PYTEST_FLAGS)

fuzz: $(STAMP) ## fuzz all readers with many hostile inputs
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/fuzz $(PYTEST_FLAGS)

# Kernels add in different orders, so results must agree within rounding.
numerictest: $(STAMP) ## run the numeric tests with the kernels of an old processor
	ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest -m "not slow" \
	  --numprocesses=$(TEST_PROCESSES) --dist=loadfile $(PYTEST_FLAGS) \
	  $(NUMERIC_TESTS)

$(BEAM)/.installed: setup.py pyproject.toml constraints.txt
	@$(BEAM)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(BEAM)
	@echo "Installing Apache Beam into $(BEAM) ..."
	@grep -vE '^($(BEAM_OWN))==' constraints.txt > $(BEAM)/constraints.txt
	@$(BEAM)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(BEAM)/constraints.txt --editable '.[beam]' pytest
	@touch $@

beamtest: $(BEAM)/.installed ## run the tests of Apache Beam, in a separate environment
	$(BEAM)/bin/python -m pytest tests/datagen/test_beam_splits.py

$(RAY)/.installed: setup.py pyproject.toml constraints.txt
	@$(RAY)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(RAY)
	@echo "Installing Ray into $(RAY) ..."
	@$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[ray]' pytest
	@touch $@

raytest: $(RAY)/.installed ## run the test of Ray Train, in a separate environment
	$(RAY)/bin/python -m pytest tests/system/test_cluster.py -k ray_train

$(TORCH)/.installed: setup.py pyproject.toml constraints.txt
	@$(TORCH)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(TORCH)
	@echo "Installing PyTorch into $(TORCH) ..."
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt torch==2.13.0 keras
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --editable .
	@touch $@

torchtest: $(TORCH)/.installed ## run the model core on PyTorch, in a separate environment
	KERAS_BACKEND=torch $(TORCH)/bin/python tests/model/core_on_another_backend.py

# Version 4 is the last with pipeline("translation"). Our packages need newer
# versions of its requirements.
$(HUGGINGFACE)/.installed:
	@$(HUGGINGFACE)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(HUGGINGFACE)
	@echo "Installing transformers into $(HUGGINGFACE) ..."
	@$(HUGGINGFACE)/bin/python -m pip install --quiet --disable-pip-version-check \
	  torch==2.13.0 transformers==4.57.6 sentencepiece==0.2.3 sacremoses==0.2.0 \
	  datasets==5.0.1
	@touch $@

huggingfacetest: $(STAMP) $(HUGGINGFACE)/.installed ## compare with transformers, read datasets, in a separate environment
	$(BIN)/python -m pytest tests/interop/test_huggingface.py \
	  tests/problem/test_datasets.py

lint: $(STAMP) ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy does not support package_dir, so link the folders into one package.
	@rm -rf $(TYPES) && mkdir -p $(TYPES)/t2t_lite
	@ln -s $(addprefix ../../,$(wildcard t2t_lite/*) problems hparams bin) \
	  $(TYPES)/t2t_lite
	$(BIN)/mypy $(TYPES)/t2t_lite
	$(BIN)/python tests/support/plain_words.py

docs: $(STAMP) ## build the documents into site/
	$(BIN)/python docs/option_tables.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(STAMP) ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Toolkits that the benchmarks compare with, in a separate environment.
$(PEERS)/.installed:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	  torch==2.13.0 transformers ctranslate2
	@touch $@

bench: $(STAMP) $(PEERS)/.installed ## compare speed with other toolkits
	$(BIN)/python benchmarks/training_step.py --peer_python=$(PEERS)/bin/python
	$(BIN)/python benchmarks/decoding.py --peer_python=$(PEERS)/bin/python

clean: ## remove built and trained files, but not .venv
	rm -rf $(QUICKSTART) $(PAPER) build dist site *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
