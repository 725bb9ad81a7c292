# Every target sets up what it needs first; when all is there, that takes no time.
PYTHON ?= python3
RUN := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup lab test figures notebooks measure lint clean

help: ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

setup: ## build .venv, install everything, fetch the language model
	@$(PYTHON) .ci/bootstrap.py

lab: setup ## open JupyterLab on the first notebook
	@$(RUN) .ci/lab.py

test: setup ## lint, all tests, every notebook, one browser test
	@$(RUN) .ci/check.py

figures: setup ## draw every file of figures/ again, from recorded data
	@$(RUN) -m specdec_lab figures

notebooks: setup ## execute the notebooks and write their outputs (NAME=00 for one)
	@$(RUN) .ci/notebooks.py write $(NAME)

measure: setup ## measure this machine again; writes data/measurements (takes long)
	@$(RUN) -m specdec_lab measure

lint: setup ## ruff: rules and format, on .py and .ipynb
	@$(RUN) .ci/check.py lint

clean: ## remove .venv and everything built; the model's cache stays
	rm -rf .venv build dist *.egg-info test-artifacts .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
