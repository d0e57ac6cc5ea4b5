PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench docs clean

demo: .venv/installed
	$(BIN)/whyformer demo --out demo

test: .venv/installed
	$(BIN)/python -m pytest -n auto

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --cov --cov-report=term:skip-covered --cov-fail-under=90

bench: .venv/installed
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/scenes.py
	$(BIN)/python benchmarks/facts.py

docs: .venv/installed
	$(BIN)/whyformer explain src/whyformer/zoo/cat.jpg --model mini-vit --out docs/cat.png
	$(BIN)/whyformer response "All in all, the film was dull, but the" --response " music was great. The story was slow." \
		--context "The music of the film was great. The actors were great too." \
		--context "The story was slow and dull. Nobody laughed." \
		--context "It rained all day. We went home by bus." --out docs/response.png
	$(BIN)/python docs/tables.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv demo build
