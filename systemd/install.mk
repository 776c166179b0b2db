# SPDX-License-Identifier: MIT
# What is installed, and packages of it.

bindir     = $(PREFIX)/bin
libdir     = $(PREFIX)/lib
includedir = $(PREFIX)/include
datadir    = $(PREFIX)/share
docdir     = $(datadir)/doc/gpushm
# systemd reads these below /usr/local/lib as well as below /usr/lib.
unitdir    = $(PREFIX)/lib/systemd/system
SUBST = sed -e 's|@bindir@|$(bindir)|g' -e 's|@libdir@|$(libdir)|g' -e 's|@includedir@|$(includedir)|g' \
	-e 's|@prefix@|$(PREFIX)|g' -e 's|@version@|$(VERSION)|g' -e 's|@soversion@|$(SOVERSION)|g' \
	-e 's|@include_from_lib@|$(shell realpath -ms --relative-to=$(libdir) $(includedir))|g'

# The one list: words of the form WHERE=WHAT. WHAT is a file, which is substituted if its name ends with .in; or, behind
# "link:", the target of a link; or, behind "so:", the manual page that a page of one line refers to.
programs = $(foreach p,$(1),$(bindir)/$(notdir $(p))=$(p))
# Where a file of that name goes: a manual's section is its suffix; zsh wants _name, bash the bare name.
man_path = $(datadir)/man/man$(subst .,,$(suffix $(1)))/$(1)
completion_path = $(datadir)/$(if $(filter _%,$(1)),zsh/site-functions/$(1),bash-completion/completions/$(basename $(1)))
# "man gpushm_open" shows gpushm(3): a page for each public function, which has only a link in it.
pages = $(foreach f,$(filter-out $(3),$(sort $(shell grep -ohP '\bgpushm_\w+(?=\x28)' $(2)))),$(call man_path,$(f).3)=so:man3/$(1))
FUNCTIONS := $(call pages,gpushm.3,$(filter-out %_stream.h %_handle.h %_records.h,$(HEADERS)))
known = $(patsubst $(datadir)/man/man3/%.3,%,$(foreach f,$(FUNCTIONS),$(firstword $(subst =, ,$(f)))))
$(foreach p,stream handle load,$(eval FUNCTIONS += $$(call pages,gpushm_$p.3,client/gpushm_$p.h,$$(known) gpushm_load gpushm_load_progress_fn)))
library_files = $(libdir)/$(1).so.$(VERSION)=$(BUILD)/$(1).so.$(VERSION) $(libdir)/$(1).so.$(SOVERSION)=link:$(1).so.$(VERSION) \
	$(libdir)/$(1).so=link:$(1).so.$(SOVERSION) $(libdir)/$(1).a=$(BUILD)/$(1).a
INSTALLS = $(call programs,$(BUILD)/gpushmd $(BUILD)/gpushmctl $(EXPORTER) $(RELAY)) $(foreach l,libgpushm libgpushm-load,$(call library_files,$(l))) \
	$(foreach h,$(HEADERS) client/gpushm_load.h client/gpushm.hpp,$(includedir)/$(notdir $(h))=$(h)) \
	$(foreach p,gpushm.pc gpushm-load.pc,$(libdir)/pkgconfig/$(p)=client/$(p).in) \
	$(foreach f,gpushmConfig gpushmConfigVersion,$(libdir)/cmake/gpushm/$(f).cmake=client/$(f).cmake.in) \
	$(foreach m,$(notdir $(wildcard man/*.[1-8])),$(call man_path,$(m))=man/$(m)) $(FUNCTIONS) \
	$(foreach c,$(notdir $(wildcard client/ctl/completion/*)),$(call completion_path,$(c))=client/ctl/completion/$(c)) \
	$(unitdir)/gpushmd.service=systemd/gpushmd.service.in $(unitdir)/gpushmd.socket=systemd/gpushmd.socket \
	$(PREFIX)/lib/sysusers.d/gpushm.conf=systemd/sysusers.conf $(PREFIX)/lib/modules-load.d/gpushm.conf=systemd/modules-load.conf \
	$(PREFIX)/lib/systemd/catalog/gpushm.catalog=systemd/gpushm.catalog \
	$(if $(EXPORTER),$(unitdir)/gpushm-exporter.service=systemd/gpushm-exporter.service.in) \
	$(if $(RELAY),$(unitdir)/gpushm-relay.service=systemd/gpushm-relay.service.in $(unitdir)/gpushm-relay.socket=systemd/gpushm-relay.socket \
		$(PREFIX)/lib/sysusers.d/gpushm-relay.conf=systemd/sysusers-relay.conf) \
	$(foreach f,gpushm.rules.yml gpushm-relay.rules.yml gpushm-dashboard.json,$(docdir)/prometheus/$(f)=systemd/prometheus/$(f)) \
	$(foreach c,$(CONFIGURATIONS),$(docdir)/$(c)=systemd/$(c))
CONFIGURATIONS = gpushmd.conf $(if $(RELAY),gpushm-relay.conf)

# A user who installs below a PREFIX of his own gets no file outside of it: SYSCONFDIR is written for the system's
# prefixes, and where it was asked for.
INSTALLS_CONFIG = $(or $(filter /usr /usr/local,$(PREFIX)),$(filter command environment,$(origin SYSCONFDIR)))
# The configuration in $(SYSCONFDIR) is the administrator's: it is written where there is none, and never removed if
# it was changed. ldconfig, systemd-sysusers and systemctl are the caller's to run; gpushmctl finds the library by itself.
install: all ## installs below PREFIX, and DESTDIR
	@for f in $(INSTALLS); do \
		to=$(DESTDIR)$${f%%=*} what=$${f#*=} mode=644; $(if $(V),echo "$$to";) \
		mkdir -p "$${to%/*}" || exit 1; case $$to in $(DESTDIR)$(bindir)/*) mode=755 ;; esac; \
		case $$what in link:*) ln -sf $${what#link:} "$$to" ;; so:*) echo ".so $${what#so:}" >"$$to" && chmod 644 "$$to" ;; \
		*.in) $(SUBST) $$what >"$$to" && chmod 644 "$$to" ;; *) install -m $$mode $$what "$$to" ;; esac || exit 1; done
	@$(if $(INSTALLS_CONFIG),for c in $(CONFIGURATIONS); do [ -e $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c ] || \
		install -D -m 644 systemd/$$c $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c || exit 1; done)
uninstall:
	rm -f $(foreach f,$(INSTALLS),$(DESTDIR)$(firstword $(subst =, ,$(f))))
	$(if $(INSTALLS_CONFIG),for c in $(CONFIGURATIONS); do ! cmp -s systemd/$$c $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c || \
		rm -f $(DESTDIR)$(SYSCONFDIR)/gpushm/$$c; done)
	rmdir --ignore-fail-on-non-empty $(wildcard $(addprefix $(DESTDIR),$(libdir)/cmake/gpushm $(docdir)/prometheus $(docdir) $(SYSCONFDIR)/gpushm))
# Below pythondir, a folder where Python looks for modules; it has no default. The folder .dist-info tells pip and importlib.metadata.
install-python: $(BUILD)/python-extension/_core.abi3.so $(PYTHON_HERE)/_core.pyi
	@for m in $(PYTHON_TEXT:$(PYTHON_HERE)/%=%); do install -D -m 644 client/python/gpushm/$$m $(DESTDIR)$(or $(pythondir),$(error pythondir= names a folder where Python looks for modules; a wheel needs none))/gpushm/$$m || exit 1; done
	@install -m 644 $^ $(DESTDIR)$(pythondir)/gpushm/ && mkdir -p $(DESTDIR)$(pythondir)/gpushm-$(VERSION).dist-info
	@printf 'Metadata-Version: 2.1\nName: gpushm\nVersion: $(VERSION)\n' >$(DESTDIR)$(pythondir)/gpushm-$(VERSION).dist-info/METADATA

# ---- packages ----

DEB_VERSION ?= $(VERSION)
# Of the tracked files as they are here; dpkg-buildpackage runs a part of the tests, unless DEB_BUILD_OPTIONS has nocheck.
deb: ## Debian packages: build/deb/*.deb
rpm: ## packages for RPM: build/rpm/*.rpm
deb deb-source rpm:
	@systemd/packages.sh $(@:deb-%=%) $(BUILD) $(DEB_VERSION)
# For podman and all others that read OCI archives.
image:
	@+systemd/container/image.sh $(BUILD) $(VERSION)
# What is in git at HEAD. Its times are the commit's, its modes not of git's configuration: the same commit gives the same bytes.
dist:
	@mkdir -p $(BUILD)
	git -c tar.umask=022 archive --prefix=gpushm-$(VERSION)/ HEAD | gzip -9n >$(BUILD)/gpushm-$(VERSION).tar.gz
	@echo $(BUILD)/gpushm-$(VERSION).tar.gz
# One command for a release: gpushm-contributing(7).
release-ready:
	@tests/release.sh ready $(VERSION)
release: ## the files of a release: build/release
	@tests/release.sh make $(VERSION) $(abspath $(BUILD))/release
