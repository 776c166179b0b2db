# SPDX-License-Identifier: MIT
# gpushmctl, and gpushm-exporter, which serves what "gpushmctl metrics" prints; it is built where libmicrohttpd is.

LEFT_OUT += $(addprefix client/ctl/doctor_,$(if $(CUDA_INCLUDE),nocuda.c,cuda.c facts.c))
CTL_SRC := $(call in_folders,client/ctl $(addprefix client/ctl/,model stream top))
CTL_LIBS = -lm
EXPORTER_SRC := $(wildcard client/ctl/exporter/*.c)
EXPORTER := $(if $(HAS_HTTP),$(BUILD)/gpushm-exporter)
LEFT_OUT += $(if $(EXPORTER),,$(EXPORTER_SRC))
NOTES += $(if $(EXPORTER),,'built without gpushm-exporter (no libmicrohttpd found)')

# For unit tests: all of gpushmctl but main().
$(BUILD)/ctl.a: $(call objects,$(filter-out client/ctl/main.c,$(CTL_SRC)))
# Programs find their libraries beside themselves here, and in ../lib where they are installed, with no need of ldconfig.
$(BUILD)/gpushmctl: $(call objects,$(CTL_SRC)) $(BUILD)/common.a $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,. ../lib) -lgpushm $(CLIENT_LIBS) $(CTL_LIBS)
$(BUILD)/gpushm-exporter: $(call objects,$(EXPORTER_SRC) client/ctl/snapshot.c) $(BUILD)/common.a $(BUILD)/systemd.a $(BUILD)/proto.a $(BUILD)/libgpushm.so
	$(call link,. ../lib) -lgpushm -lmicrohttpd $(SYSTEMD_LIBS) $(CLIENT_LIBS)

ctl: $(BUILD)/gpushmctl $(EXPORTER) ## gpushmctl and gpushm-exporter
