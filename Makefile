# outboxd: build, test, check, install.
#
#   make                     build/outboxd, build/outbox-consume, build/liboutbox.a, build/liboutbox.so
#   make test [T=part]       unit and integration tests; T selects programs by a part of their name
#   make faults [DURATION=30m] [SEED=n] [FAULT=name]   faults at random, then the checker
#   make fuzz [FUZZ_SECONDS=60] [FUZZ=name] [FUZZ_KEEP=1]   libFuzzer on everything that reads text from outside
#   make bench | bench-quick | bench-sweep | bench-soak [DURATION=30m] [RATE=n]   measure (docs/benchmarks.md)
#   make test-ecosystems     the examples in Python, Node and PHP, against the real relay (docs/testing.md)
#   make demo                payments by many clients, relayed while the relay is killed, and checked
#   make example             the same with two consumer services and everything killed in turn, compared from database to database (docs/example.md)
#   make unit | lint | format | check-hardening | clean
#   make install | uninstall [PREFIX=/usr/local] [DESTDIR=dir]   programs, library, manual pages, completions, systemd units, scripts, documents
#   make deb | test-deb      a Debian package in build/deb; installed, tried and purged in a fresh Debian (docs/deployment.md)
#
#   CC=gcc|clang   SAN=address|thread|fuzzer   each has a directory of its own below build/; the plain build is build/outboxd
#   WERROR=1       warnings are errors
#   BUILD=DIR      build somewhere else
#   V=1            show whole commands
#   DEPS=no        do not look for missing packages, nor install them
#
# No program is called while this file is read: on a bare Debian the first recipe installs the compiler (scripts/install-deps.sh).

VERSION := 0.1.0

ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
INSTALL ?= install
OBJCOPY ?= objcopy
BUILD ?= build
PREFIX ?= /usr/local
bindir ?= $(PREFIX)/bin
libdir ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include
pkgconfigdir ?= $(libdir)/pkgconfig
mandir ?= $(PREFIX)/share/man
docdir ?= $(PREFIX)/share/doc/outboxd
pkgdatadir ?= $(PREFIX)/share/outboxd
bashcompletiondir ?= $(PREFIX)/share/bash-completion/completions
zshcompletiondir ?= $(PREFIX)/share/zsh/site-functions
systemddir ?= $(PREFIX)/lib/systemd/system
sysusersdir ?= $(PREFIX)/lib/sysusers.d
SAN ?=
WERROR ?=
DEPS ?= yes
T ?=
JOBS ?= 4
LINT_JOBS ?= 2

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

# ---- where things go

CC_NAME := $(notdir $(firstword $(CC)))
empty :=
space := $(empty) $(empty)
VARIANT := $(subst $(space),-,$(strip $(filter-out gcc cc,$(CC_NAME)) $(SAN)))
B := $(if $(VARIANT),$(BUILD)/$(VARIANT),$(BUILD))
GEN := $(BUILD)/gen

MAINS := src/main.c src/consume_main.c
SOURCES := $(sort $(filter-out $(MAINS),$(wildcard src/*.c)))
EMBEDDED := $(sort $(wildcard sql/*.sql src/*.lua))
UNIT_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
INTEGRATION_SOURCES := $(sort $(wildcard tests/integration/test_*.c))
ECOSYSTEM_SOURCES := $(sort $(wildcard tests/ecosystems/test_*.c))
TESTLIB_SOURCES := $(sort $(wildcard tests/lib/*.c))
EXAMPLE_SOURCES := $(sort $(wildcard examples/*/*.c))
TOOL_SOURCES := $(sort $(wildcard tests/tools/*.c))
FUZZ_SOURCES := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FAULTS_SOURCES := $(sort $(filter-out tests/faults/main.c,$(wildcard tests/faults/*.c)))
BENCH_SOURCES := $(sort $(wildcard tests/bench/*.c))

# What liboutbox is made of, as position-independent code; what it exports begins with outbox_ (packaging/liboutbox.map).
LIBRARY_MODULES := backoff buf clock consume_held consume_lane consume_message consume_options consume_read consume_redis consume_session \
  consume_worker consumer err log net option_parse partition pg pgarray record record_writer redis redis_error schema sql stop template \
  units url uuid7
LIBRARY_OBJECTS := $(LIBRARY_MODULES:%=$(B)/pic/src/%.o) $(B)/pic/gen/embed.o
SONAME := liboutbox.so.0
LIBRARY := $(B)/liboutbox.so
ARCHIVE := $(B)/liboutbox.a

OBJECTS := $(SOURCES:%.c=$(B)/obj/%.o) $(B)/obj/gen/embed.o
MAIN_OBJECT := $(B)/obj/src/main.o
CONSUME_OBJECT := $(B)/obj/src/consume_main.o
TESTLIB_OBJECTS := $(TESTLIB_SOURCES:%.c=$(B)/obj/%.o)
UNIT_PROGRAMS := $(UNIT_SOURCES:%.c=$(B)/%)
INTEGRATION_PROGRAMS := $(INTEGRATION_SOURCES:%.c=$(B)/%)
ECOSYSTEM_PROGRAMS := $(ECOSYSTEM_SOURCES:%.c=$(B)/%)
EXAMPLE_PROGRAMS := $(EXAMPLE_SOURCES:%.c=$(B)/%)
TOOL_PROGRAMS := $(TOOL_SOURCES:%.c=$(B)/%)
FUZZ_PROGRAMS := $(FUZZ_SOURCES:%.c=$(B)/%)
FAULTS_OBJECTS := $(FAULTS_SOURCES:%.c=$(B)/obj/%.o)
FAULTS_PROGRAM := $(B)/tests/faults/faults
BENCH_OBJECTS := $(BENCH_SOURCES:%.c=$(B)/obj/%.o)
BENCH_PROGRAM := $(B)/tests/bench/bench
TEST_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(UNIT_SOURCES) $(INTEGRATION_SOURCES) $(ECOSYSTEM_SOURCES) $(TOOL_SOURCES) $(FUZZ_SOURCES) \
  $(EXAMPLE_SOURCES) $(FAULTS_SOURCES) $(BENCH_SOURCES) tests/fuzz/replay.c tests/faults/main.c packaging/generate.c)
CORE := $(B)/liboutboxd-core.a
GENERATE := $(B)/packaging/generate
# The manual page and the completions, made from the option table.
PAGES := $(addprefix $(B)/pages/,outboxd.1 outboxd.bash _outboxd outbox-consume.1 outbox-consume.bash _outbox-consume)
PROGRAM := $(B)/outboxd
CONSUME_PROGRAM := $(B)/outbox-consume
PROGRAMS := $(PROGRAM) $(CONSUME_PROGRAM)
NOCAS_PROGRAM := $(B)/outboxd-nocas

# ---- flags

# gcc has -Wimplicit-fallthrough in -Wextra; clang 14 does not know the comments that mark it in uthash.  clang's -Wstring-conversion
# is about assert(!"text").
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes \
  -Wold-style-definition -Wcast-qual -Wcast-align -Wformat=2 -Wundef -Wvla -Wdouble-promotion -Wnull-dereference \
  -Wno-string-conversion -Wpointer-arith -Wwrite-strings -Wredundant-decls -Wswitch-enum -Wunused \
  -Werror=implicit-function-declaration -Werror=implicit-int -Werror=int-conversion -Werror=incompatible-pointer-types
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif

HARDENING_CFLAGS := -fstack-protector-strong -fstack-clash-protection -fPIE
HARDENING_LDFLAGS := -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
ifeq ($(SAN),)
HARDENING_CFLAGS += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
# The sanitizers replace the functions that _FORTIFY_SOURCE would wrap.
HARDENING_CFLAGS += -U_FORTIFY_SOURCE
endif

SAN_FLAGS :=
ifeq ($(SAN),address)
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(SAN),thread)
SAN_FLAGS := -fsanitize=thread -fno-omit-frame-pointer
else ifeq ($(SAN),fuzzer)
SAN_FLAGS := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifneq ($(SAN),)
$(error SAN is "$(SAN)": it takes address, thread or fuzzer)
endif
# What calls a fuzzer: libFuzzer, or a main of our own that goes over the kept inputs.
ifeq ($(SAN),fuzzer)
FUZZ_LDFLAGS := -fsanitize=fuzzer
else
FUZZ_MAIN_OBJECT := $(B)/obj/tests/fuzz/replay.o
endif

# Called when a recipe needs them, once: $(call once,NAME,command).
once = $(eval $(1) := $(2))$($(1))
CF_PROTECTION = $(call once,CF_PROTECTION,$(if $(filter x86_64 i%86,$(shell uname -m)),-fcf-protection=full))
PACKAGES := libpq hiredis jansson
# -isystem: other people's headers are not held to our warnings.
PACKAGE_CFLAGS = $(call once,PACKAGE_CFLAGS,$(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(PACKAGES))))
PACKAGE_LIBS = $(call once,PACKAGE_LIBS,$(shell pkg-config --libs $(PACKAGES)))
CMOCKA_LIBS = $(call once,CMOCKA_LIBS,$(shell pkg-config --libs cmocka))

# _GNU_SOURCE: TCP_USER_TIMEOUT, pthread_setname_np, pipe2.
CPPFLAGS_ALL = -D_GNU_SOURCE -DOUTBOXD_VERSION='"$(VERSION)"' -Iinclude -I$(GEN) $(PACKAGE_CFLAGS) $(CPPFLAGS)
CFLAGS ?= -O2 -g
CFLAGS_ALL = -std=c11 -pthread $(WARNINGS) $(HARDENING_CFLAGS) $(CF_PROTECTION) $(SAN_FLAGS) $(CFLAGS)
LDFLAGS_ALL = -pthread $(HARDENING_LDFLAGS) -Wl,--as-needed $(SAN_FLAGS) $(CFLAGS) $(LDFLAGS)

# V=1 shows the whole commands.  The demo and the example say in one line of their own what is built for them.
Q := $(if $(V),,@)
say = $(if $(V)$(filter demo example,$(MAKECMDGOALS)),,@echo "  $(1)")
COMPILE = $(CC) $(CPPFLAGS_ALL) $(if $(filter tests/%,$<),-Itests/lib) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<
LINK = $(CC) $(LDFLAGS_ALL) -o $@ $^
COMPILE_PIC = $(CC) $(CPPFLAGS_ALL) $(subst -fPIE,-fPIC,$(CFLAGS_ALL)) -fvisibility=hidden -ffunction-sections -MMD -MP -c -o $@ $<

# ---- targets

.PHONY: all lib pages deps tests unit-programs fuzz-programs test test-ecosystems unit fuzz faults bench bench-quick bench-sweep bench-soak building demo example lint format check-hardening install uninstall deb test-deb clean FORCE

all: $(PROGRAMS) $(LIBRARY) $(ARCHIVE) $(PAGES)
lib: $(CORE)
pages: $(PAGES)

# The packages that the goals given need; one target, so that two package managers never run side by side.
DEPS_GROUP := $(if $(filter lint format fuzz,$(MAKECMDGOALS)),lint,$(if $(filter bench%,$(MAKECMDGOALS)),bench,$(if $(filter deb test-deb,$(MAKECMDGOALS)),deb,$(if \
  $(filter test-ecosystems,$(MAKECMDGOALS)),ecosystems,$(if \
  $(filter test tests unit unit-programs fuzz-programs faults demo example,$(MAKECMDGOALS)),test,build)))))
deps:
ifneq ($(DEPS),no)
	@scripts/install-deps.sh $(DEPS_GROUP)
endif

$(PROGRAM): $(MAIN_OBJECT) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(CONSUME_PROGRAM): $(CONSUME_OBJECT) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(CORE): $(OBJECTS)
	@rm -f $@
	$(call say,AR    $@)
	$(Q)$(AR) rcs $@ $(OBJECTS)

# ---- liboutbox

$(B)/pic/src/%.o: src/%.c $(B)/flags | $(GEN)/embed.h
	@mkdir -p $(@D)
	$(call say,CC    $< (PIC))
	$(Q)$(COMPILE_PIC)
$(B)/pic/gen/embed.o: $(GEN)/embed.c $(GEN)/embed.h $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC    $< (PIC))
	$(Q)$(COMPILE_PIC)

$(B)/$(SONAME): $(LIBRARY_OBJECTS) packaging/liboutbox.map
	$(call say,LINK  $@)
	$(Q)$(CC) $(filter-out -pie,$(LDFLAGS_ALL)) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=packaging/liboutbox.map \
	  -Wl,--gc-sections $(if $(SAN),,-Wl,--no-undefined) -o $@ $(LIBRARY_OBJECTS) $(PACKAGE_LIBS)
$(LIBRARY): $(B)/$(SONAME)
	@ln -sf $(SONAME) $@

# One object, in which everything but outbox_* has become local: the library's own names cannot clash with a program's.
$(B)/pic/liboutbox.o: $(LIBRARY_OBJECTS)
	$(Q)$(CC) -nostdlib -r -o $@.all $(LIBRARY_OBJECTS) && $(OBJCOPY) --localize-hidden $@.all $@
$(ARCHIVE): $(B)/pic/liboutbox.o
	@rm -f $@
	$(call say,AR    $@)
	$(Q)$(AR) rcs $@ $<

# Changes only when the flags do, so that an object is never kept from another set of flags.
$(B)/flags: FORCE | deps
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL))' > $@.$$$$ && \
	  if cmp -s $@.$$$$ $@; then rm -f $@.$$$$; else mv $@.$$$$ $@; fi

$(B)/obj/%.o: %.c $(B)/flags | $(GEN)/embed.h
	@mkdir -p $(@D)
	$(call say,CC    $<)
	$(Q)$(COMPILE)

$(B)/obj/gen/embed.o: $(GEN)/embed.c $(GEN)/embed.h $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC    $<)
	$(Q)$(COMPILE)

# The list of files is a prerequisite too: one that was removed must vanish from the generated file.
$(GEN)/embed.list: FORCE | deps
	@mkdir -p $(@D)
	@printf '%s\n' $(EMBEDDED) > $@.$$$$ && if cmp -s $@.$$$$ $@; then rm -f $@.$$$$; else mv $@.$$$$ $@; fi
$(GEN)/embed.h: scripts/embed.sh $(GEN)/embed.list $(EMBEDDED)
	@scripts/embed.sh header $(EMBEDDED) > $@.$$$$ && mv $@.$$$$ $@
$(GEN)/embed.c: scripts/embed.sh $(GEN)/embed.list $(EMBEDDED)
	@scripts/embed.sh source $(EMBEDDED) > $@.$$$$ && mv $@.$$$$ $@

# The relay without the journal's compare-and-set, for tests that must see the damage: found first, this embed.o hides the library's.
$(GEN)/nocas/publish.lua: src/publish.lua
	@mkdir -p $(@D)
	@sed '/^if head ~= /s/^if .* then$$/if false then/' $< > $@ && ! cmp -s $< $@
$(GEN)/nocas/embed.c: scripts/embed.sh $(GEN)/embed.list $(EMBEDDED) $(GEN)/nocas/publish.lua
	@scripts/embed.sh source $(EMBEDDED:src/publish.lua=$(GEN)/nocas/publish.lua) > $@.$$$$ && mv $@.$$$$ $@
$(B)/obj/gen/nocas/embed.o: $(GEN)/nocas/embed.c $(GEN)/embed.h $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC    $<)
	$(Q)$(COMPILE)
$(NOCAS_PROGRAM): $(MAIN_OBJECT) $(B)/obj/gen/nocas/embed.o $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(UNIT_PROGRAMS): $(B)/%: $(B)/obj/%.o $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS) $(CMOCKA_LIBS)

$(FUZZ_PROGRAMS): $(B)/%: $(B)/obj/%.o $(FUZZ_MAIN_OBJECT) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(FUZZ_LDFLAGS) $(PACKAGE_LIBS)

$(B)/tests/integration/test_faults: $(FAULTS_OBJECTS)
$(INTEGRATION_PROGRAMS) $(ECOSYSTEM_PROGRAMS) $(TOOL_PROGRAMS): $(B)/%: $(B)/obj/%.o $(TESTLIB_OBJECTS) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS) $(CMOCKA_LIBS)

# As a user's program: the public header, the archive.
$(EXAMPLE_PROGRAMS): $(B)/%: $(B)/obj/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(FAULTS_PROGRAM): $(B)/obj/tests/faults/main.o $(FAULTS_OBJECTS) $(TESTLIB_OBJECTS) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(BENCH_PROGRAM): $(BENCH_OBJECTS) $(TESTLIB_OBJECTS) $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(GENERATE): $(B)/obj/packaging/generate.o $(CORE)
	@mkdir -p $(@D)
	$(call say,LINK  $@)
	$(Q)$(LINK) $(PACKAGE_LIBS)

$(B)/pages/%.1: packaging/man/%.1.in $(GENERATE)
	@mkdir -p $(@D)
	@$(GENERATE) $* man $< > $@.$$$$ && mv $@.$$$$ $@
$(B)/pages/%.bash: $(GENERATE)
	@mkdir -p $(@D)
	@$(GENERATE) $* bash > $@.$$$$ && mv $@.$$$$ $@
$(B)/pages/_%: $(GENERATE)
	@mkdir -p $(@D)
	@$(GENERATE) $* zsh > $@.$$$$ && mv $@.$$$$ $@

unit-programs: $(UNIT_PROGRAMS) $(FUZZ_PROGRAMS)
fuzz-programs: $(FUZZ_PROGRAMS)
tests: $(PROGRAMS) $(LIBRARY) $(ARCHIVE) $(PAGES) $(NOCAS_PROGRAM) $(UNIT_PROGRAMS) $(FUZZ_PROGRAMS) $(INTEGRATION_PROGRAMS) $(TOOL_PROGRAMS) \
  $(EXAMPLE_PROGRAMS) $(BENCH_PROGRAM)

test: tests
	@BUILD=$(B) T='$(T)' JOBS=$(JOBS) scripts/run-tests.sh unit fuzz integration
unit: unit-programs $(PROGRAMS) $(LIBRARY) $(ARCHIVE) $(PAGES)
	@BUILD=$(B) T='$(T)' JOBS=$(JOBS) scripts/run-tests.sh unit fuzz

# npm packages beside the build, in the versions that examples/node/package.json names.
$(BUILD)/node/installed: examples/node/package.json | deps
	@mkdir -p $(@D) && cp $< $(@D)/package.json
	@cd $(@D) && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@
# Needs interpreters and libraries of other languages: a group of packages of its own, apart from "test".
test-ecosystems: $(PROGRAM) $(ECOSYSTEM_PROGRAMS) $(BUILD)/node/installed
	@scripts/check-examples.sh
	@BUILD=$(B) NODE_MODULES=$(abspath $(BUILD))/node/node_modules T='$(T)' scripts/run-tests.sh ecosystems

# In a build directory of its own, always with clang: docs/testing.md "Fuzzers".
fuzz: | deps
	@$(MAKE) --no-print-directory CC=clang SAN=fuzzer DEPS=no fuzz-programs
	@BUILD=$(BUILD)/clang-fuzzer FUZZ='$(FUZZ)' FUZZ_SECONDS='$(FUZZ_SECONDS)' FUZZ_KEEP='$(FUZZ_KEEP)' scripts/run-fuzz.sh

# Faults at random for a long time: tests/faults/main.c, docs/testing.md "Faults".
faults: $(PROGRAM) $(FAULTS_PROGRAM)
	@OUTBOXD_BIN=$(abspath $(PROGRAM)) DURATION='$(DURATION)' SEED='$(SEED)' FAULT='$(FAULT)' RELAYS='$(RELAYS)' RATE='$(RATE)' \
	  $(FAULTS_PROGRAM)

# tests/bench/main.c; BENCH_ONLY, BENCH_SCALE, BENCH_FSYNC and BENCH_PLOTS come from the environment.
bench bench-quick bench-sweep bench-soak: $(PROGRAM) $(BENCH_PROGRAM)
	@OUTBOXD_BIN=$(abspath $(PROGRAM)) DURATION='$(DURATION)' RATE='$(RATE)' \
	  $(BENCH_PROGRAM) $(if $(filter bench,$@),all,$(@:bench-%=%))

# Only what the scripts run is built.
DEMO_PROGRAMS := $(PROGRAM) $(B)/tests/tools/outbox-check
EXAMPLE_NEEDS := $(PROGRAMS) $(B)/examples/payments/analytics $(B)/tests/tools/outbox-check
building:
	@echo "Building what it runs in $(B), which takes a minute the first time; V=1 shows the commands."
demo: building $(DEMO_PROGRAMS)
	@OUTBOXD_BIN=$(abspath $(PROGRAM)) BUILD=$(B) scripts/demo.sh
example: building $(EXAMPLE_NEEDS)
	@OUTBOXD_BIN=$(abspath $(PROGRAM)) BUILD=$(B) scripts/example.sh

lint: $(GEN)/embed.h | deps
	@LINT_JOBS=$(LINT_JOBS) LINT_CPPFLAGS='$(subst ','\'',$(CPPFLAGS_ALL))' BUILD=$(B) scripts/lint.sh
format: | deps
	clang-format -i $(wildcard include/*.h include/outboxd/*.h src/*.c tests/*/*.c tests/*/*.h packaging/*.c examples/*/*.c)

check-hardening: $(PROGRAMS)
	@scripts/check-hardening.sh $(PROGRAM)
	@scripts/check-hardening.sh $(CONSUME_PROGRAM)

# Each file that is installed, as SOURCE:PATH:MODE; uninstall goes by the same list.  The documents lie to each other as they do here, so that
# their links lead somewhere.
DOC_FILES := README.md CHANGELOG.md LICENSE $(sort $(wildcard docs/*.md docs/benchmarks/*.svg))
# What the documents tell an operator to run, and the SQL beside it.
SCRIPT_FILES := $(addprefix scripts/,postgres-roles.sh postgres-roles.sql redis-user.sh upgrade-to-partitioned.sh \
  upgrade-to-partitioned-check.sql upgrade-to-partitioned-exchange.sql upgrade-to-partitioned-state.sql)
INSTALLED = $(PROGRAM):$(bindir)/outboxd:0755 \
  $(CONSUME_PROGRAM):$(bindir)/outbox-consume:0755 \
  $(B)/pages/outboxd.1:$(mandir)/man1/outboxd.1:0644 \
  $(B)/pages/outbox-consume.1:$(mandir)/man1/outbox-consume.1:0644 \
  $(B)/pages/outbox-consume.bash:$(bashcompletiondir)/outbox-consume:0644 \
  $(B)/pages/_outbox-consume:$(zshcompletiondir)/_outbox-consume:0644 \
  $(B)/pages/outboxd.bash:$(bashcompletiondir)/outboxd:0644 \
  $(B)/pages/_outboxd:$(zshcompletiondir)/_outboxd:0644 \
  $(B)/pages/outboxd.service:$(systemddir)/outboxd.service:0644 \
  $(B)/pages/outboxd@.service:$(systemddir)/outboxd@.service:0644 \
  packaging/systemd/outboxd.sysusers:$(sysusersdir)/outboxd.conf:0644 \
  $(B)/$(SONAME):$(libdir)/liboutbox.so.$(VERSION):0644 \
  $(ARCHIVE):$(libdir)/liboutbox.a:0644 \
  include/outbox.h:$(includedir)/outbox.h:0644 \
  $(B)/pages/outbox.pc:$(pkgconfigdir)/outbox.pc:0644 \
  packaging/man/outbox.3:$(mandir)/man3/outbox.3:0644 \
  packaging/systemd/outboxd.env:$(docdir)/outboxd.env:0644 \
  $(foreach file,$(SCRIPT_FILES),$(file):$(pkgdatadir)/$(file):$(if $(filter %.sh,$(file)),0755,0644)) \
  $(foreach file,$(DOC_FILES),$(file):$(docdir)/$(file):0644)
# Symbolic links to the library.
LINKS = $(libdir)/$(SONAME) $(libdir)/liboutbox.so
# Directories of outboxd alone, the inner ones first.
DIRECTORIES = $(docdir)/docs/benchmarks $(docdir)/docs $(docdir) $(pkgdatadir)/scripts $(pkgdatadir)
item = $(word $(2),$(subst :, ,$(1)))
define newline


endef

# The units hold the path of the program: made anew for each PREFIX.  Of their template's lines, those with @one@ are for outboxd.service, those
# with @each@ for outboxd@.service.
install: $(PROGRAMS) $(LIBRARY) $(ARCHIVE) $(PAGES)
	@sed -e '/@each@/d' -e 's/@one@//' -e 's|@bindir@|$(bindir)|' packaging/systemd/outboxd.service.in > '$(B)/pages/outboxd.service'
	@sed -e '/@one@/d' -e 's/@each@//' -e 's|@bindir@|$(bindir)|' packaging/systemd/outboxd.service.in > '$(B)/pages/outboxd@.service'
	@sed -e 's|@prefix@|$(PREFIX)|' -e 's|@libdir@|$(libdir)|' -e 's|@includedir@|$(includedir)|' -e 's|@version@|$(VERSION)|' \
	  packaging/outbox.pc.in > '$(B)/pages/outbox.pc'
	$(foreach file,$(INSTALLED),$(Q)$(INSTALL) -D -m $(call item,$(file),3) '$(call item,$(file),1)' \
	  '$(DESTDIR)$(call item,$(file),2)'$(newline))
	$(foreach link,$(LINKS),$(Q)ln -sf liboutbox.so.$(VERSION) '$(DESTDIR)$(link)'$(newline))
	$(call say,INSTALL  $(words $(INSTALLED) $(LINKS)) files below $(DESTDIR)$(PREFIX))
uninstall:
	$(foreach file,$(INSTALLED),$(Q)rm -f '$(DESTDIR)$(call item,$(file),2)'$(newline))
	$(foreach link,$(LINKS),$(Q)rm -f '$(DESTDIR)$(link)'$(newline))
	@for dir in $(foreach dir,$(DIRECTORIES),'$(DESTDIR)$(dir)'); do if [ -d "$$dir" ]; then rmdir --ignore-fail-on-non-empty "$$dir"; fi; done
	$(call say,REMOVED  $(words $(INSTALLED) $(LINKS)) files below $(DESTDIR)$(PREFIX))

# A Debian package in build/deb, from packaging/debian.
deb: | deps
	@BUILD=$(BUILD) VERSION=$(VERSION) scripts/make-deb.sh
test-deb: deb
	@BUILD=$(BUILD) scripts/test-deb.sh

clean:
	rm -rf $(BUILD)

-include $(OBJECTS:.o=.d) $(CONSUME_OBJECT:.o=.d) $(LIBRARY_OBJECTS:.o=.d) $(MAIN_OBJECT:.o=.d) $(TESTLIB_OBJECTS:.o=.d) $(TEST_OBJECTS:.o=.d)
.SECONDARY:
