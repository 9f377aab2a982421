#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The build itself: layers, headers, generated pages, installation.

. "$INFC_SRC/tests/lib/t.sh"

t_check layers "$INFC_SRC/tests/layers.sh" "$INFC_SRC"

# The check itself must see what it is for: each line below is one wrong include.
layers_finds_wrong_includes() {
    mkdir -p wrong
    while read -r file header; do
        mkdir -p "wrong/${file%/*}"
        printf '#include "%s"\n' "$header" >"wrong/$file"
    done <<END
ir/a.c passes/pass.h
passes/a.c targets/target.h
targets/a.c passes/pass.h
targets/b.c llvm-c/Core.h
targets/cpu/a.c targets/cuda/emit.h
compiler/a.c targets/cpu/emit.h
compiler/b.c protobuf-c/protobuf-c.h
runtime/a.c ir/op.h
runtime/abi/a.h runtime/engine.h
ir/b.c compiler/options.h
END
    if "$INFC_SRC/tests/layers.sh" wrong >found; then return 1; fi
    [ "$(grep -c '^[a-z/]*\.[ch]:1: ' found)" = 10 ]
}
t_check layers-finds-wrong-includes layers_finds_wrong_includes

t_check headers "$INFC_SRC/tests/headers.sh" "$INFC_SRC"
t_check generated make -s -C "$INFC_BUILD" check-generated

# In the source folder, too, `make GOAL` works for the goals that have a folder's name: make must not take it for their file.
goals_that_are_folders() {
    mkdir clone && cp "$INFC_SRC/configure" "$INFC_SRC/Makefile.in" clone/ && cp -r "$INFC_SRC/ir" clone/ || return 1
    mkdir clone/docs clone/models clone/tests
    (cd clone && ./configure CC="$INFC_CC") >log 2>&1 || { tail -n 3 log; return 1; }
    for goal in docs models tests; do
        make -n -C clone $goal 2>/dev/null | grep -q -e "-C build $goal" || { echo "make $goal does nothing"; return 1; }
    done
}
t_check goals-that-are-folders goals_that_are_folders

# Everything an engine is linked from arrives, and nothing is written outside DESTDIR.
install_goes_to_destdir() {
    make -s -C "$INFC_BUILD" install DESTDIR="$TMP/dest" PREFIX=/opt/infc || return 1
    if [ "$(ls "$TMP/dest")" != opt ] || [ "$(ls "$TMP/dest/opt")" != infc ]; then return 1; fi
    for f in "$INFC_BUILD"/lib/*; do
        if [ ! -e "$f" ]; then continue; fi
        cmp "$f" "$TMP/dest/opt/infc/lib/infc/${f##*/}" || return 1
    done
    if [ -x "$INFC_BUILD/infc" ]; then cmp "$INFC_BUILD/infc" "$TMP/dest/opt/infc/bin/infc"; fi
}
t_check install install_goes_to_destdir

t_end
