# SPDX-License-Identifier: MIT
# What two programs have: the text of metrics, and where libmicrohttpd is, servers of HTTP.

HAS_HTTP := $(shell $(PKG_CONFIG) --exists libmicrohttpd 2>/dev/null && echo yes)
LEFT_OUT += $(if $(HAS_HTTP),,$(addprefix client/common/,clients.c listen.c process.c))
COMMON_SRC := $(call in_folders,client/common)

$(BUILD)/common.a: $(call objects,$(COMMON_SRC))
