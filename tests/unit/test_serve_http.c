// SPDX-License-Identifier: Apache-2.0
/* Framing of HTTP requests: what is taken, what is refused and with which status. Expectations are
 * RFC 9110 and 9112's, or stricter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/serve/http_parse.h"

#define H "Host: x\r\n"

static int head(const char *text, size_t n, struct http_head *h)
{
    int code = http_parse_head(text, n, h);
    for (size_t k = 0; k < n && code > 0 && k < (size_t)code; k++)
        assert_int_equal(http_parse_head(text, k, h), 0);
    return http_parse_head(text, n, h);
}

static void test_heads(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status; /* 0: taken */
    } rows[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", 0},
        {"\r\nGET / HTTP/1.1\r\n" H "\r\n", 0},
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n\r\n", 400},                 /* no Host */
        {"GET / HTTP/1.1\r\n" H H "\r\n", 400},          /* two */
        {"GET / HTTP/2.0\r\n" H "\r\n", 505},
        {"GET / HTTP/1.x\r\n" H "\r\n", 400},
        {"GET / http/1.1\r\n" H "\r\n", 400},
        {"GET /\r\n", 400},
        {"GET  / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1 \r\n" H "\r\n", 400},
        {" GET / HTTP/1.1\r\n" H "\r\n", 400},
        {"G(T / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET x HTTP/1.1\r\n" H "\r\n", 400},
        {"GET http://h/x HTTP/1.1\r\n" H "\r\n", 0},
        {"GET http:///x HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /a#b HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\x01 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n", 400},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", 0},
        {"GET / HTTP/1.1\n" H "\r\n", 400},              /* bare line feeds */
        {"GET / HTTP/1.1\r\nHost: x\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\rc\r\n\r\n", 400},  /* a carriage return alone */
        {"GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H " folded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H ": b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: \x01\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A:\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n" H "A: \xff\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5, 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: +5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0x5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 5 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: CHUNKED\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding : chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: \x0b" "chunked\r\n\r\n", 400},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Expect: tea\r\n\r\n", 417},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h;
        int code = head(rows[i].text, strlen(rows[i].text), &h);
        int want = rows[i].status ? -rows[i].status : (int)strlen(rows[i].text);
        if (code != want) fail_msg("row %zu: %d, not %d", i, code, want);
    }
    struct http_head h; /* a NUL is a character like others */
    assert_int_equal(http_parse_head("GET /\0 HTTP/1.1\r\n" H "\r\n", 28, &h), -400);
}

static void test_parts(void **state)
{
    (void)state;
    struct http_head h;
    static const char text[] = "POST /v1/x?a=1&b HTTP/1.1\r\nhOsT:  y \r\nConnection: te, Close\r\n"
                               "X-A: 1\r\nX-A: 2\r\nContent-Length: 0012\r\n\r\nrest";
    assert_int_equal(head(text, sizeof text - 1, &h), (int)sizeof text - 1 - 4);
    assert_true(http_is(h.method, "POST"));
    assert_true(http_is(h.path, "/v1/x"));
    assert_true(http_is(h.query, "a=1&b"));
    assert_true(http_is(*http_find(&h, "host"), "y"));
    assert_null(http_find(&h, "x-a"));
    assert_null(http_find(&h, "x-b"));
    assert_int_equal(h.length, 12);
    assert_false(h.keep_alive);
    static const char old[] = "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
    assert_int_equal(head(old, sizeof old - 1, &h), (int)sizeof old - 1);
    assert_true(h.keep_alive);
    static const char both[] = "GET / HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n";
    assert_int_equal(head(both, sizeof both - 1, &h), (int)sizeof both - 1);
}

#define R "HTTP/1.1 200 OK\r\n"

static void test_replies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status; /* negative: no reply */
    } rows[] = {
        {R "\r\n", 200},
        {"HTTP/1.0 404 Not Found\r\n\r\n", 404},
        {"HTTP/1.1 503\r\n\r\n", 503},
        {"HTTP/1.1 503 \r\n\r\n", 503},
        {R "Content-Length: 5\r\nA: b\r\n\r\n", 200},
        {R "Transfer-Encoding: chunked\r\n\r\n", 200},
        {R "Expect: what\r\n\r\n", 200},             /* of requests alone */
        {"HTTP/2.0 200 OK\r\n\r\n", -1},
        {"HTTP/1.1 20 OK\r\n\r\n", -1},
        {"HTTP/1.1 2000 OK\r\n\r\n", -1},
        {"HTTP/1.1  200 OK\r\n\r\n", -1},
        {"HTTP/1.1 200OK\r\n\r\n", -1},
        {"HTTP/1.1 099 OK\r\n\r\n", -1},
        {"HTTP/1.1 600 OK\r\n\r\n", -1},
        {"HTTP/1.1 -20 OK\r\n\r\n", -1},
        {"HTTP/1.1 200 O\x01K\r\n\r\n", -1},
        {"\r\n" R "\r\n", -1},
        {"HTTP/1.1 200 OK\n\r\n", -1},
        {R "A: b\n\r\n", -1},
        {R "A: b\rC: d\r\n\r\n", -1},
        {R " folded\r\n\r\n", -1},
        {R "A : b\r\n\r\n", -1},
        {R "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", -1},
        {R "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", -1},
        {R "Transfer-Encoding: gzip\r\n\r\n", -1},
        {R "Content-Length: -5\r\n\r\n", -1},
        {R "Content-Length: 99999999999999999999\r\n\r\n", -1},
        {"GET / HTTP/1.1\r\n" H "\r\n", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h;
        size_t n = strlen(rows[i].text);
        int used = http_parse_reply(rows[i].text, n, &h);
        if (rows[i].status < 0) {
            if (used >= 0) fail_msg("taken: %s", rows[i].text);
            continue;
        }
        assert_int_equal(used, n);
        assert_int_equal(h.status, rows[i].status);
        for (size_t k = 0; k < n; k++) assert_int_equal(http_parse_reply(rows[i].text, k, &h), 0);
    }
}

static void test_limits(void **state)
{
    (void)state;
    size_t n = 200000;
    char *text = malloc(n);
    struct http_head h;
    memset(text, 'a', n);
    assert_int_equal(http_parse_head(text, n, &h), -414);
    memcpy(text, "GET /", 5);
    assert_int_equal(http_parse_head(text, n, &h), -414);
    memcpy(text, "GET / HTTP/1.1\r\nA: ", 19);
    assert_int_equal(http_parse_head(text, n, &h), -431);
    assert_int_equal(http_parse_head(text, 1000, &h), 0);
    size_t at = 16;
    for (int i = 0; i < 101; i++) memcpy(text + at, "A: b\r\n", 6), at += 6;
    memcpy(text + at, H "\r\n", 11);
    assert_int_equal(http_parse_head(text, at + 11, &h), -431);
    free(text);
}

static int feed(const char *text, size_t piece, uint64_t max, char *out)
{
    struct http_chunks c = {0};
    struct http_span data;
    size_t used, n = strlen(text), n_out = 0;
    int code = HTTP_CHUNK_MORE;
    for (size_t at = 0; at < n && code != HTTP_CHUNK_END; at += used) {
        code = http_chunks_feed(&c, text + at, n - at < piece ? n - at : piece, max, &used, &data);
        if (code < 0) return code;
        if (code == HTTP_CHUNK_DATA) memcpy(out + n_out, data.p, data.n), n_out += data.n;
    }
    out[n_out] = 0;
    return code;
}

static void test_chunks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
        int code;
    } rows[] = {
        {"5\r\nhello\r\n0\r\n\r\n", "hello", HTTP_CHUNK_END},
        {"5\r\nhello\r\n06\r\n world\r\n000\r\n\r\n", "hello world", HTTP_CHUNK_END},
        {"0\r\n\r\n", "", HTTP_CHUNK_END},
        {"A;name=\"v\"\r\n0123456789\r\n0\r\nTrailer: x\r\nB: y\r\n\r\n", "0123456789",
         HTTP_CHUNK_END},
        {"5\r\nhello\r\n0\r\n", "hello", HTTP_CHUNK_MORE},
        {"5\nhello\n0\n\n", NULL, -400},
        {"5\r\nhello0\r\n\r\n", NULL, -400},
        {"6\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"0x5\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"-1\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {" 5\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"5 \r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"g\r\n", NULL, -400},
        {";x\r\n", NULL, -400},
        {"5;a\nb\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"00000000000000005\r\nhello\r\n0\r\n\r\n", NULL, -400},
        {"FFFFFFFFFFFFFFFF\r\n", NULL, -413},
        {"20\r\n", NULL, -413},
        {"10\r\n0123456789abcdef\r\n10\r\n", NULL, -413},
        {"5\r\nhello\r\n0\r\n\x01\r\n\r\n", NULL, -400},
    };
    char body[100];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece < 50; piece += 4) {
            int code = feed(rows[i].text, piece, 0x1f, body);
            if (rows[i].code == HTTP_CHUNK_MORE && code == HTTP_CHUNK_DATA) code = HTTP_CHUNK_MORE;
            if (code != rows[i].code) fail_msg("row %zu: %d, not %d", i, code, rows[i].code);
            if (rows[i].body) assert_string_equal(body, rows[i].body);
        }
    char *text = malloc(20001);
    memset(text, 'x', 20000), text[20000] = 0;
    memcpy(text, "5;", 2);
    assert_int_equal(feed(text, 100, 31, body), -400);
    memcpy(text, "0\r\n", 3);
    assert_int_equal(feed(text, 100, 31, body), -431);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
