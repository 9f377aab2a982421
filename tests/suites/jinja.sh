#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The template engine against jinja2 itself, on published chat templates and on random templates. Needs
# jinja2 3.1.6 in the test environment, and for the first the folder ../shared/data/chat_templates
# beside the source folder; skips what it lacks.

. "$INFC_SRC/tests/lib/t.sh"

python=${INFC_PYTHON:-python3}
if ! $python -c 'import jinja2; assert jinja2.__version__ == "3.1.6"' 2>/dev/null; then
    t_skip all 'no jinja2 3.1.6'
    exit 0
fi

# shellcheck disable=SC2086
if ! ${INFC_CC:-cc} -std=c11 -O1 $INFC_INCLUDES ${INFC_SANITIZE:+-fsanitize=$INFC_SANITIZE} -o render \
    "$INFC_SRC/tests/jinja/render.c" "$INFC_SRC"/runtime/text/j*.c "$INFC_SRC/runtime/text/unicode_utf8.c" \
    -ljansson -lm; then
    t_fail build 'tests/jinja/render.c does not build'
    exit 1
fi

templates=$INFC_SRC/../shared/data/chat_templates
if [ -d "$templates" ]; then
    t_check chat-templates "$python" "$INFC_SRC/tests/jinja/compare.py" ./render "$templates"
else
    t_skip chat-templates "no $templates"
fi
t_check random-templates "$python" "$INFC_SRC/tests/jinja/random_compare.py" ./render 1500 1
t_end
