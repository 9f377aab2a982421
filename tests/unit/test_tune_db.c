// SPDX-License-Identifier: Apache-2.0
/* Tuning databases: lines, merging, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/tune/db.h"

#define CPU "GenuineIntel-6-143"

static bool parse(struct tune_db *db, const char *text, struct diag_sink *diag)
{
    return tune_db_parse(db, text, strlen(text), "t.db", diag);
}

static void test_lines(void **state)
{
    (void)state;
    struct tune_db db;
    struct diag_sink diag;
    tune_db_init(&db);
    diag_init(&diag);
    assert_true(parse(&db,
                      "# a comment\n\n"
                      "0123456789abcdef v4 " CPU " tile=1402,prefetch=4096 12.50 11.25\n"
                      "  0123456789abcdef v3 " CPU " - 3 3\n"
                      "00000000000000ff v4 " CPU " row_block=48 1 1", /* no line end */
                      &diag));
    assert_int_equal(db.entries.n, 3);
    const struct tune_entry *e = tune_db_find(&db, 0x0123456789abcdef, "v4", CPU);
    assert_non_null(e);
    assert_true(e->values.set[KNOB_TILE] && e->values.value[KNOB_TILE] == 1402);
    assert_true(e->values.set[KNOB_PREFETCH] && e->values.value[KNOB_PREFETCH] == 4096);
    assert_false(e->values.set[KNOB_ROW_BLOCK]);
    assert_true(e->us_before == 12.5 && e->us_after == 11.25);
    e = tune_db_find(&db, 0x0123456789abcdef, "v3", CPU);
    assert_non_null(e);
    for (int k = 0; k < KNOB_COUNT; k++) assert_false(e->values.set[k]);
    assert_null(tune_db_find(&db, 0x0123456789abcdef, "v2", CPU));
    assert_null(tune_db_find(&db, 0x0123456789abcdef, "v4", "AuthenticAMD-25-97"));
    assert_null(tune_db_find(&db, 1, "v4", CPU));
    diag_deinit(&diag);
    tune_db_deinit(&db);
}

/* Two databases one behind the other: the later line counts. */
static void test_merged(void **state)
{
    (void)state;
    struct tune_db db;
    struct diag_sink diag;
    tune_db_init(&db);
    diag_init(&diag);
    assert_true(parse(&db, "0123456789abcdef v4 " CPU " tile=1402 2 1\n0123456789abcdef v4 " CPU " tile=604 2 1.5\n", &diag));
    assert_int_equal(db.entries.n, 1);
    assert_int_equal(tune_db_find(&db, 0x0123456789abcdef, "v4", CPU)->values.value[KNOB_TILE], 604);
    diag_deinit(&diag);
    tune_db_deinit(&db);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0123456789abcde v4 " CPU " - 1 1",          /* a short hash */
        "0123456789ABCDEF v4 " CPU " - 1 1",         /* not as we write it */
        "0123456789abcdef v4 " CPU " - 1",           /* a word is missing */
        "0123456789abcdef v4 " CPU " - 1 1 1",       /* one too many */
        "0123456789abcdef v4 " CPU " tiles=1402 1 1", /* no such knob */
        "0123456789abcdef v4 " CPU " tile 1 1",
        "0123456789abcdef v4 " CPU " tile= 1 1",
        "0123456789abcdef v4 " CPU " tile=99999999999999999999 1 1",
        "0123456789abcdef v4 " CPU " prefetch=-1 1 1", /* out of range */
        "0123456789abcdef v4 " CPU " - nan 1",
        "0123456789abcdef v4 " CPU " - -1 1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tune_db db;
        struct diag_sink diag;
        tune_db_init(&db);
        diag_init(&diag);
        if (parse(&db, bad[i], &diag)) fail_msg("taken: %s", bad[i]);
        assert_int_equal(diag.error_count, 1);
        assert_string_equal(diag.items.v[0].loc, "t.db:1");
        assert_int_equal(db.entries.n, 0);
        diag_deinit(&diag);
        tune_db_deinit(&db);
    }
}

static void test_written_and_read(void **state)
{
    (void)state;
    struct tune_db db, back;
    struct diag_sink diag;
    tune_db_init(&db);
    tune_db_init(&back);
    diag_init(&diag);
    assert_true(parse(&db, "ffffffffffffffff v4 " CPU " tile=604,row_block=192 2 1\n0000000000000001 v3 " CPU " - 4 4\n", &diag));
    assert_true(tune_db_write(&db, "tune.db", &diag));
    assert_true(tune_db_read(&back, "tune.db", false, &diag));
    assert_int_equal(back.entries.n, 2);
    assert_int_equal(back.entries.v[0].kernel, 1); /* sorted: by CPU, level, kernel */
    assert_int_equal(tune_db_find(&back, UINT64_MAX, "v4", CPU)->values.value[KNOB_ROW_BLOCK], 192);
    remove("tune.db");
    assert_true(tune_db_read(&back, "tune.db", true, &diag));
    assert_int_equal(diag.error_count, 0);
    assert_false(tune_db_read(&back, "tune.db", false, &diag));
    diag_deinit(&diag);
    tune_db_deinit(&db);
    tune_db_deinit(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_written_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
