#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Recipes and the fetcher. Everything here is offline: a source is a local folder or not there.

. "$INFC_SRC/tests/lib/t.sh"

if ! command -v python3 >/dev/null; then t_skip all 'no python3'; exit 0; fi
fetch=$INFC_SRC/models/fetch
export INFC_MODEL_CACHE="$TMP/cache"
unset INFC_MODEL_DIR

t_check recipes-are-good "$fetch" --list

t_run unknown-name 2 "$fetch" nosuchmodel && t_grep unknown-name 'no recipe named nosuchmodel' err &&
    t_ok unknown-name

# A source with the wrong bytes must not reach the cache, and the message must say why.
mkdir -p local/surfaces
for f in gradient_boosting_regressor k_neighbors_classifier k_neighbors_classifier.validity \
    k_neighbors_regressor; do
    echo wrong >local/surfaces/$f.onnx
done
if INFC_MODEL_DIR=$TMP/local t_run wrong-hash 3 "$fetch" --offline surfaces &&
    t_grep wrong-hash "its hash is not the recipe's" err &&
    t_grep wrong-hash 'offline forbids' err; then
    if [ -e "$TMP/cache/surfaces" ]; then t_fail wrong-hash 'the cache holds the wrong file'
    else t_ok wrong-hash; fi
fi

# With a recipe of our own: right bytes from the local folder, then from the cache alone, then a
# cached file that was changed behind our back is noticed.
mkdir -p tree/recipes local/tiny
cp "$fetch" tree/fetch
printf 'hello\n' >local/tiny/a.bin
cat >tree/recipes/tiny.json <<END
{"name": "tiny", "what": "six bytes", "licence": "Apache-2.0", "main": "a.bin", "files": [{"name": "a.bin",
 "sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
 "sources": ["pypi:infc-no-such-package==0!a.bin"]}]}
END
local_then_cache() {
    p=$(INFC_MODEL_DIR=$TMP/local tree/fetch --offline tiny) && cmp "$p" local/tiny/a.bin &&
        [ "$(tree/fetch --offline tiny)" = "$p" ]
}
t_check local-then-cache local_then_cache
changed_file_is_noticed() {
    printf 'HELLO\n' >cache/tiny/a.bin
    ! tree/fetch --offline tiny
}
t_check changed-file-is-noticed changed_file_is_noticed

t_end
