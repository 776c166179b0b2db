# SPDX-License-Identifier: MIT
# The Python package: an extension for Python 3.11 and all that follow, and what it is linked with beside it. Needs Python's
# headers, and pip for the wheel; nothing else here does.

PYTHON ?= python3
PYTHON_INCLUDE = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
PYTHON_SRC  := $(wildcard client/python/core/*.c)
PYTHON_OBJ  := $(call objects,$(PYTHON_SRC))
PYTHON_HERE := $(BUILD)/python/gpushm
PYTHON_TEXT := $(patsubst client/python/gpushm/%,$(PYTHON_HERE)/%,$(wildcard $(addprefix client/python/gpushm/,*.py* py.typed */*.py)))
PYTHON_LIBS := $(addprefix $(PYTHON_HERE)/,libgpushm.so.$(SOVERSION) libgpushm-load.so.$(SOVERSION))
LEFT_OUT += $(if $(wildcard $(PYTHON_INCLUDE)/Python.h),,$(PYTHON_SRC))
$(PYTHON_OBJ): ALL_CFLAGS += -isystem $(PYTHON_INCLUDE)
$(PYTHON_OBJ): | $(BUILD)/gen/python_tables.h
$(BUILD)/gen/python_tables.h: client/python/tables.py client/python/core.pyi.in ; @mkdir -p $(@D); $(PYTHON) $^ >$@

# With PYTHONPATH=$(BUILD)/python the package can be used from here.
python-core: $(PYTHON_HERE)/_core.abi3.so $(PYTHON_LIBS) $(PYTHON_TEXT) $(PYTHON_HERE)/_core.pyi
	@rm -f $(filter-out $(PYTHON_TEXT) $(PYTHON_LIBS),$(wildcard $(addprefix $(PYTHON_HERE)/,*.py */*.py lib*))) # what an earlier build had
$(PYTHON_TEXT): $(PYTHON_HERE)/%: client/python/gpushm/%
# Its own copies of the libraries and programs, which find each other in one folder.
$(PYTHON_LIBS): $(PYTHON_HERE)/%.so.$(SOVERSION): $(BUILD)/%.so.$(VERSION)
$(PYTHON_HERE)/gpushmctl: $(BUILD)/gpushmctl
$(BUILD)/python/gpushmd: $(BUILD)/gpushmd
$(PYTHON_HERE)/_core.pyi: client/python/core.pyi.in client/records.awk client/records.txt
	$(call RECORDS,stubs) | sed -e '/^@records@$$/{r /dev/stdin' -e 'd}' $< >$@
$(PYTHON_TEXT) $(PYTHON_LIBS) $(PYTHON_HERE)/gpushmctl $(BUILD)/python/gpushmd:
	@mkdir -p $(@D); cp $< $@
# Python's own symbols come from whoever loads it.
$(PYTHON_HERE)/_core.abi3.so: $(PYTHON_OBJ) $(BUILD)/libgpushm.so $(PYTHON_LIBS)
	$(call link,.) -shared -lgpushm
# For a distribution's package: linked with the system's library, and without copies of others.
python-extension: $(BUILD)/python-extension/_core.abi3.so
$(BUILD)/python-extension/_core.abi3.so: $(PYTHON_OBJ) $(BUILD)/libgpushm.so ; $(link) -shared -lgpushm
python-programs: $(BUILD)/python/gpushmd $(PYTHON_HERE)/gpushmctl

# ---- wheels ----

PACK = $(call SAY,WHEEL)V=$(V) VERSION=$(VERSION) MAKE='$(MAKE_ALL)' client/python/wheel.sh
python: $(BUILD)/venv/ready python-core python-programs ## the Python package, as a wheel for this machine
	$(PACK) here $(BUILD) $(BUILD)/venv
wheel: ## the Python package for any Linux with glibc 2.28: build/dist/*.whl; WHEEL_ARCH=aarch64 for 64-bit Arm
	$(if $(CUDA_INCLUDE),,$(error no cuda.h was found, and a wheel has all kinds of pools: make deps wheel))
	$(PACK) wheel $(BUILD) $(WHEEL_ARCH)
wheel-tools: ; $(PACK) tools $(BUILD)
sdist: $(BUILD)/venv/ready ## the Python package's source distribution: build/dist/*.tar.gz
	$(PACK) sdist $(BUILD)
# What a build needs, with its Debian package; setup.py asks first, so that pip shows all of it at once.
needs:
	@CC='$(CC)' PYTHON_INCLUDE='$(PYTHON_INCLUDE)' client/python/needs.sh

# ---- virtual environments ----

# For tests, each with its list in tests/requirements. Of NIXL the C library alone is used, without PyTorch, which it wants.
VENVS = venv venv-torch venv-fleet venv-numba venv-nixl
$(VENVS): %: $(BUILD)/%/ready
$(VENVS:%=$(BUILD)/%/ready): $(BUILD)/%/ready: tests/requirements/%.txt
	@mkdir -p $(BUILD); rm -rf $(@D)
	@python3 -m venv $(@D) || { echo "$*: python3 -m venv failed: apt-get install python3-venv" >&2; exit 1; }
	$(call SAY,PIP)$(@D)/bin/pip install -q --disable-pip-version-check $(if $(filter venv-nixl,$*),--no-deps) -r $< || { \
		echo "$*: pip could not install $<: is there a network, or a PIP_INDEX_URL? Tests in Python need it." >&2; exit 1; }
	@touch $@
