// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "runtime/lm/lm_line.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "runtime/text/unicode_utf8.h"

void lm_line_init(struct lm_line *l, int fd)
{
    *l = (struct lm_line){.fd = fd, .edits = isatty(fd) && isatty(STDERR_FILENO)};
}

void lm_line_deinit(struct lm_line *l)
{
    for (int i = 0; i < l->n_history; i++) free(l->history[i]);
    free(l->text);
    *l = (struct lm_line){.fd = -1};
}

/* ---- text ---- */

static bool insert(struct lm_line *l, const char *bytes, size_t n)
{
    if (l->n + n + 1 > l->cap) {
        size_t cap = 2 * (l->n + n) + 64;
        char *text = cap < LM_LINE_MOST ? realloc(l->text, cap) : NULL;
        if (!text) return false; /* the key does nothing */
        l->text = text, l->cap = cap;
    }
    memmove(l->text + l->at + n, l->text + l->at, l->n - l->at);
    memcpy(l->text + l->at, bytes, n);
    l->at += n, l->n += n;
    l->text[l->n] = 0;
    return true;
}

static void erase(struct lm_line *l, size_t from, size_t to)
{
    if (from == to) return;
    memmove(l->text + from, l->text + to, l->n - to + 1);
    l->n -= to - from;
    l->at = from;
}

static unsigned width_of(uint32_t c)
{
    static const struct {
        uint32_t lo, hi, width;
    } rows[] = {{0x300, 0x36f, 0},    {0x200b, 0x200f, 0},   {0xfe00, 0xfe0f, 0},
                {0x1100, 0x115f, 2},  {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},
                {0xf900, 0xfaff, 2},  {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
                {0xffe0, 0xffe6, 2},  {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1faff, 2},
                {0x20000, 0x3fffd, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (c >= rows[i].lo && c <= rows[i].hi) return rows[i].width;
    return 1;
}

size_t lm_line_columns(const char *text, size_t n)
{
    size_t columns = 0;
    for (size_t i = 0; i < n; i += utf8_length((uint8_t)text[i]))
        columns += width_of(utf8_get((const uint8_t *)text + i));
    return columns;
}

static size_t before(const struct lm_line *l, size_t at)
{
    do {
        if (!at) return 0;
        at--;
        while (at && ((unsigned char)l->text[at] & 0xc0) == 0x80) at--;
    } while (at && !width_of(utf8_get((const uint8_t *)l->text + at)));
    return at;
}

static size_t behind(const struct lm_line *l, size_t at)
{
    if (at < l->n) at += utf8_length((uint8_t)l->text[at]);
    while (at < l->n && !width_of(utf8_get((const uint8_t *)l->text + at)))
        at += utf8_length((uint8_t)l->text[at]);
    return at;
}

static size_t word_before(const struct lm_line *l)
{
    size_t at = l->at;
    while (at && l->text[at - 1] == ' ') at--;
    while (at && l->text[at - 1] != ' ') at--;
    return at;
}

void lm_line_edit(struct lm_line *l, unsigned key)
{
    uint8_t bytes[4];
    switch (key) {
    case LM_KEY_LEFT: l->at = before(l, l->at); break;
    case LM_KEY_RIGHT: l->at = behind(l, l->at); break;
    case LM_KEY_HOME: l->at = 0; break;
    case LM_KEY_END: l->at = l->n; break;
    case LM_KEY_BACKSPACE: erase(l, before(l, l->at), l->at); break;
    case LM_KEY_DELETE: erase(l, l->at, behind(l, l->at)); break;
    case LM_KEY_WORD_BACK: erase(l, word_before(l), l->at); break;
    case LM_KEY_TO_START: erase(l, 0, l->at); break;
    case LM_KEY_TO_END: erase(l, l->at, l->n); break;
    default:
        if (key < LM_KEY_NONE && (key >= 32 || key == '\n' || key == '\t') && key != 127)
            insert(l, (const char *)bytes, utf8_put(bytes, key));
    }
}

/* ---- keys ---- */

static unsigned control_key(unsigned char c)
{
    switch (c) {
    case 1: return LM_KEY_HOME;
    case 2: return LM_KEY_LEFT;
    case 3: return LM_KEY_BREAK;
    case 4: return LM_KEY_EOF;
    case 5: return LM_KEY_END;
    case 6: return LM_KEY_RIGHT;
    case 8:
    case 127: return LM_KEY_BACKSPACE;
    case '\t': return '\t';
    case 11: return LM_KEY_TO_END;
    case 12: return LM_KEY_CLEAR;
    case '\n':
    case '\r': return LM_KEY_ENTER;
    case 14: return LM_KEY_DOWN;
    case 16: return LM_KEY_UP;
    case 21: return LM_KEY_TO_START;
    case 23: return LM_KEY_WORD_BACK;
    default: return LM_KEY_NONE;
    }
}

/* ESC [ number ~ and ESC [ letter; ESC O letter. */
static unsigned escape_key(unsigned number, unsigned char last)
{
    static const unsigned numbered[] = {[1] = LM_KEY_HOME,
                                        [3] = LM_KEY_DELETE,
                                        [4] = LM_KEY_END,
                                        [7] = LM_KEY_HOME,
                                        [8] = LM_KEY_END};
    switch (last) {
    case 'A': return LM_KEY_UP;
    case 'B': return LM_KEY_DOWN;
    case 'C': return LM_KEY_RIGHT;
    case 'D': return LM_KEY_LEFT;
    case 'H': return LM_KEY_HOME;
    case 'F': return LM_KEY_END;
    case '~':
        if (number == 200) return LM_KEY_PASTE;
        return number < sizeof numbered / sizeof *numbered && numbered[number] ? numbered[number]
                                                                               : LM_KEY_NONE;
    default: return LM_KEY_NONE;
    }
}

static bool take_escape(const unsigned char *p, size_t n, size_t *at, unsigned *out)
{
    size_t i = *at + 1;
    unsigned number = 0;
    if (i == n) return false;
    if (p[i] == '\r' || p[i] == '\n') {
        *out = '\n', *at = i + 1;
        return true;
    }
    if (p[i] != '[' && p[i] != 'O') {
        *out = LM_KEY_NONE, *at = i;
        return true;
    }
    for (i++; i < n && (p[i] < 0x40 || p[i] > 0x7e); i++) {
        if (p[i] == ';')
            number = number > 1000 ? number : number; /* modifiers are ignored */
        else if (p[i] >= '0' && p[i] <= '9' && number < 1000)
            number = number * 10 + p[i] - '0';
    }
    if (i == n) return i - *at > 32 ? (*out = LM_KEY_NONE, *at = n, true) : false;
    *out = escape_key(number, p[i]);
    *at = i + 1;
    return true;
}

bool lm_line_key(const unsigned char *p, size_t n, size_t *at, unsigned *out)
{
    int valid;
    if (*at >= n) return false;
    if (p[*at] == 27) return take_escape(p, n, at, out);
    if (p[*at] < 32 || p[*at] == 127) {
        *out = control_key(p[(*at)++]);
        return true;
    }
    unsigned len = utf8_scan(p + *at, n - *at, &valid);
    if (valid < 0) return false;
    *out = valid ? utf8_get(p + *at) : LM_KEY_NONE;
    *at += len;
    return true;
}

/* ---- the terminal ---- */

struct screen {
    struct lm_line *l;
    const char *prompt;
    unsigned char bytes[4096]; /* typed, not used yet */
    size_t n, at;
    int shown; /* place in the history; n_history: the line being typed */
    char *typed;
    bool pasting;
};

static size_t columns_of_terminal(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 20 ? 80 : w.ws_col;
}

/* One row: what does not fit is scrolled out to the left and right. A line feed shows as an arrow.
 */
static void draw(const struct screen *s)
{
    const struct lm_line *l = s->l;
    const char *text = l->text ? l->text : "";
    size_t room = columns_of_terminal() - 1, used = lm_line_columns(s->prompt, strlen(s->prompt));
    size_t from = 0, to;
    room = room > used + 8 ? room - used : 8;
    while (lm_line_columns(text + from, l->at - from) >= room)
        from += utf8_length((uint8_t)text[from]);
    for (to = l->at; to < l->n;) {
        size_t next = to + utf8_length((uint8_t)text[to]);
        if (lm_line_columns(text + from, next - from) > room) break;
        to = next;
    }
    fprintf(stderr, "\r%s", s->prompt);
    for (size_t i = from; i < to; i++)
        if (text[i] == '\n')
            fputs("\xe2\x86\xb5", stderr);
        else
            fputc(text[i] == '\t' ? ' ' : text[i], stderr);
    fprintf(stderr, "\x1b[K\r\x1b[%zuC", used + lm_line_columns(text + from, l->at - from));
    fflush(stderr);
}

static void show_history(struct screen *s, int which)
{
    struct lm_line *l = s->l;
    if (which < 0 || which > l->n_history || which == s->shown) return;
    if (s->shown == l->n_history) {
        free(s->typed);
        s->typed = strdup(l->text ? l->text : "");
    }
    const char *text = which == l->n_history ? s->typed : l->history[which];
    erase(l, 0, l->n);
    if (text) insert(l, text, strlen(text));
    s->shown = which;
}

static bool fill(struct screen *s)
{
    memmove(s->bytes, s->bytes + s->at, s->n - s->at);
    s->n -= s->at, s->at = 0;
    if (s->n == sizeof s->bytes) s->n = 0;
    ssize_t got;
    do got = read(s->l->fd, s->bytes + s->n, sizeof s->bytes - s->n);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    s->n += (size_t)got;
    return true;
}

/* Pasted text goes in as it is, until ESC [ 201 ~. */
static void paste(struct screen *s)
{
    static const char end[] = "\x1b[201~";
    for (;;) {
        while (s->n - s->at >= sizeof end - 1 || (s->n > s->at && s->bytes[s->at] != 27)) {
            unsigned key = s->bytes[s->at];
            if (s->n - s->at >= sizeof end - 1 && !memcmp(s->bytes + s->at, end, sizeof end - 1)) {
                s->at += sizeof end - 1;
                return;
            }
            if (key == '\r') s->bytes[s->at] = '\n';
            if (key == '\r' || key == '\n') {
                lm_line_edit(s->l, '\n');
                s->at++;
            } else if (key == 27) {
                s->at++;
            } else if (lm_line_key(s->bytes, s->n, &s->at, &key)) {
                if (key < LM_KEY_NONE) lm_line_edit(s->l, key);
            } else {
                break;
            }
        }
        if (!fill(s)) return;
    }
}

static bool continues(const struct lm_line *l) { return l->n && l->text[l->n - 1] == '\\'; }

/* -1: goes on. */
static int use_key(struct screen *s, unsigned key)
{
    struct lm_line *l = s->l;
    switch (key) {
    case LM_KEY_ENTER:
        if (!continues(l)) return LM_LINE_TEXT;
        l->text[l->n - 1] = '\n';
        l->at = l->n;
        return -1;
    case LM_KEY_BREAK: return LM_LINE_GIVEN_UP;
    case LM_KEY_EOF:
        if (!l->n) return LM_LINE_END;
        lm_line_edit(l, LM_KEY_DELETE);
        return -1;
    case LM_KEY_UP: show_history(s, s->shown - 1); return -1;
    case LM_KEY_DOWN: show_history(s, s->shown + 1); return -1;
    case LM_KEY_CLEAR: fputs("\x1b[H\x1b[2J", stderr); return -1;
    case LM_KEY_PASTE: paste(s); return -1;
    default: lm_line_edit(l, key); return -1;
    }
}

static void remember(struct lm_line *l)
{
    if (!l->n || (l->n_history && !strcmp(l->history[l->n_history - 1], l->text))) return;
    char *copy = strdup(l->text);
    if (!copy) return;
    if (l->n_history == LM_LINE_HISTORY) {
        free(l->history[0]);
        memmove(l->history, l->history + 1, (LM_LINE_HISTORY - 1) * sizeof(char *));
        l->n_history--;
    }
    l->history[l->n_history++] = copy;
}

static enum lm_line_result edit(struct lm_line *l, const char *prompt)
{
    struct termios before_, raw;
    struct screen s = {.l = l, .prompt = prompt, .shown = l->n_history};
    int result = -1;
    unsigned key;
    if (tcgetattr(l->fd, &before_)) return LM_LINE_END;
    raw = before_;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1, raw.c_cc[VTIME] = 0;
    if (tcsetattr(l->fd, TCSADRAIN, &raw)) return LM_LINE_END;
    fputs("\x1b[?2004h", stderr); /* pastes are marked */
    while (result < 0) {
        draw(&s);
        if (!lm_line_key(s.bytes, s.n, &s.at, &key)) {
            if (!fill(&s)) result = LM_LINE_END;
            continue;
        }
        result = use_key(&s, key);
    }
    fputs("\x1b[?2004l\r\n", stderr);
    fflush(stderr);
    tcsetattr(l->fd, TCSADRAIN, &before_);
    free(s.typed);
    if (result == LM_LINE_TEXT) remember(l);
    return (enum lm_line_result)result;
}

/* ---- without a terminal ---- */

static enum lm_line_result read_plain(struct lm_line *l)
{
    char c;
    bool any = false;
    for (;;) {
        ssize_t got = read(l->fd, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return any ? LM_LINE_TEXT : LM_LINE_END;
        any = true;
        if (c == '\n') return LM_LINE_TEXT;
        insert(l, &c, 1);
    }
}

enum lm_line_result lm_line_read(struct lm_line *l, const char *prompt)
{
    l->n = l->at = 0;
    if (!insert(l, "", 0)) return LM_LINE_END;
    l->text[0] = 0;
    return l->edits ? edit(l, prompt) : read_plain(l);
}
