# SPDX-License-Identifier: MIT
# gpushm-relay: offers models to other machines, and pulls them. It is built where libmicrohttpd and GnuTLS are.

RELAY_SRC := $(call in_folders,client/relay $(addprefix client/relay/,serve offer fleet))
RELAY := $(if $(HAS_HTTP),$(if $(shell $(PKG_CONFIG) --exists gnutls 2>/dev/null && echo yes),$(BUILD)/gpushm-relay))
LEFT_OUT += $(if $(RELAY),,$(RELAY_SRC))
NOTES += $(if $(RELAY),,'built without gpushm-relay (no libmicrohttpd or no GnuTLS found)')

$(BUILD)/gpushm-relay: $(call objects,$(RELAY_SRC)) $(BUILD)/common.a $(BUILD)/systemd.a $(BUILD)/proto.a $(BUILD)/libgpushm.so $(BUILD)/libgpushm-load.so
	$(call link,. ../lib) -lgpushm-load -lgpushm -lmicrohttpd -lgnutls $(SYSTEMD_LIBS) $(MODELS_LIBS) $(CLIENT_LIBS)

relay: $(RELAY) ## gpushm-relay
