// SPDX-License-Identifier: Apache-2.0
/*
 * Steps inside JSON values.
 *
 * Objects and arrays are frames that carry a record of what they have had: which keys, how many
 * items, which wishes are fulfilled. Every step asks whether the end can still be reached with what
 * is left: a key that is no longer possible is refused at the first byte that commits to it, a
 * string whose length cannot be met any more at the character that makes it so.
 */
#include <string.h>

#include "runtime/grammar/gr_internal.h"
#include "runtime/text/unicode_utf8.h"

static bool is_space(uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- text of strings and keys ---- */

enum verdict { DEAD, GOES_ON, CLOSED };

/* Is this a state from which the length can come out right? */
static bool length_fits(const struct gr_string *str, uint32_t state, uint32_t count)
{
    if (!str->shortest) return true;
    if (count > str->max_len) return false;
    return count + str->shortest[state] <= str->max_len &&
           (str->longest[state] == GR_LEN_MANY || count + str->longest[state] >= str->min_len);
}

struct key_text;
static bool key_alive(const struct gr_object *o, const uint64_t *w, uint32_t n_known, uint32_t state,
                      const struct key_text *text);

struct text_step {
    const struct gr_grammar *g;
    const struct gr_string *str;
    struct gr_text_at t;
    const struct gr_object *key_of; /* a key of this object, whose record is w; NULL: a string */
    const uint64_t *w;
    uint32_t n_known; /* keys without a name in it */
};

/* Bytes lo[0..n) .. hi[0..n) from the state: can one of them go on? */
static bool bytes_alive(const struct text_step *x, uint32_t state, const uint8_t *lo,
                        const uint8_t *hi, unsigned n, uint32_t count)
{
    uint32_t last = 0;
    if (!n && x->key_of) return key_alive(x->key_of, x->w, x->n_known, state - x->str->start, NULL);
    if (!n) return length_fits(x->str, state - x->str->start, count);
    for (unsigned b = lo[0]; b <= hi[0]; b++) {
        uint32_t next = gr_next(x->g, state, (uint8_t)b);
        if (!next || next == last) continue;
        if (bytes_alive(x, next, lo + 1, hi + 1, n - 1, count)) return true;
        last = next;
    }
    return false;
}

/* Is there a character lo..hi that the text may go on with, as number `count`? */
static bool range_alive(const struct text_step *x, uint32_t lo, uint32_t hi, uint32_t count)
{
    uint8_t first[4], last[4];
    for (uint32_t end; lo <= hi; lo = end + 1) {
        end = hi;
        if (lo >= 0xd800 && lo <= 0xdfff) {
            end = 0xdfff;
            continue;
        }
        if (lo < 0xd800 && end > 0xd7ff) end = 0xd7ff;
        end = gr_utf8_run_end(lo, end);
        unsigned n = utf8_put(first, lo);
        utf8_put(last, end);
        if (bytes_alive(x, x->str->start + x->t.state, first, last, n, count)) return true;
    }
    return false;
}

static uint32_t count_after(const struct text_step *x) { return x->key_of ? 0 : x->t.count + 1; }

static enum verdict feed(struct text_step *x, uint32_t c)
{
    uint8_t bytes[4];
    unsigned n = utf8_put(bytes, c);
    uint32_t state = x->str->start + x->t.state;
    for (unsigned i = 0; i < n; i++)
        if (!(state = gr_next(x->g, state, bytes[i]))) return DEAD;
    x->t.state = state - x->str->start;
    x->t.phase = GR_TEXT_PLAIN, x->t.hex = x->t.high = 0;
    if (x->key_of) return GOES_ON;
    x->t.count += x->str->shortest != NULL;
    return length_fits(x->str, x->t.state, x->t.count) ? GOES_ON : DEAD;
}

/* Characters that stand for themselves and are not written by number, when few escapes are wished. */
enum { PRINTABLE = 0x20, PRINTABLE_END = 0x7f };

static bool may_number(const struct text_step *x, uint32_t c)
{
    return !x->g->o.few_escapes || c < PRINTABLE || c >= PRINTABLE_END;
}

/* The digits so far leave these characters. */
static bool hex_alive(const struct text_step *x, uint32_t hex, unsigned left)
{
    uint32_t lo = hex << 4 * left, hi = lo + (1u << 4 * left) - 1;
    if (x->g->o.few_escapes && lo < PRINTABLE_END && hi >= PRINTABLE) {
        if (lo < PRINTABLE && range_alive(x, lo, PRINTABLE - 1, count_after(x))) return true;
        lo = PRINTABLE_END;
    }
    if (lo <= hi && range_alive(x, lo, hi, count_after(x))) return true;
    if (hi < 0xd800 || lo > 0xdbff) return false;
    if (lo < 0xd800) lo = 0xd800;
    if (hi > 0xdbff) hi = 0xdbff;
    return range_alive(x, 0x10000 + ((lo - 0xd800) << 10),
                       0x10000 + ((hi - 0xd800) << 10) + 0x3ff, count_after(x));
}

static const char ESCAPES[] = "\"\\/bfnrt", MEANINGS[] = "\"\\/\b\f\n\r\t";

static bool escape_alive(const struct text_step *x)
{
    if (!x->g->o.few_escapes) return range_alive(x, 0, 0x10ffff, count_after(x));
    for (const char *c = MEANINGS; *c; c++)
        if (range_alive(x, (uint8_t)*c, (uint8_t)*c, count_after(x))) return true;
    return hex_alive(x, 0, 4);
}

static enum verdict plain_byte(struct text_step *x, uint8_t byte)
{
    if (byte == '"') return CLOSED;
    if (byte == '\\') {
        x->t.phase = GR_TEXT_BACKSLASH;
        return escape_alive(x) ? GOES_ON : DEAD;
    }
    uint32_t next = byte < 0x20 ? 0 : gr_next(x->g, x->str->start + x->t.state, byte);
    if (!next) return DEAD;
    x->t.state = next - x->str->start;
    if (x->key_of) return GOES_ON;
    x->t.count += x->str->shortest && (byte & 0xc0) != 0x80;
    return length_fits(x->str, x->t.state, x->t.count) ? GOES_ON : DEAD;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

static enum verdict hex_byte(struct text_step *x, uint8_t byte)
{
    int d = hex_digit(byte);
    bool low = x->t.phase >= GR_TEXT_LOW_HEX;
    unsigned got = x->t.phase - (low ? GR_TEXT_LOW_HEX : GR_TEXT_HEX) + 1;
    if (d < 0) return DEAD;
    uint32_t hex = x->t.hex << 4 | (uint32_t)d;
    if (low) {
        uint32_t least = hex << 4 * (4 - got), base = 0x10000 + (x->t.high << 10);
        uint32_t most = least + (1u << 4 * (4 - got)) - 1;
        if (most < 0xdc00 || least > 0xdfff) return DEAD;
        if (got == 4) return feed(x, base + (hex - 0xdc00));
        if (least < 0xdc00) least = 0xdc00;
        if (most > 0xdfff) most = 0xdfff;
        if (!range_alive(x, base + least - 0xdc00, base + most - 0xdc00,
                         count_after(x)))
            return DEAD;
    } else if (got == 4 && (hex < 0xd800 || hex > 0xdfff)) {
        return may_number(x, hex) ? feed(x, hex) : DEAD;
    } else if (!hex_alive(x, hex, 4 - got)) {
        return DEAD;
    } else if (got == 4) {
        x->t.high = hex - 0xd800, x->t.hex = 0, x->t.phase = GR_TEXT_LOW_BACKSLASH;
        return GOES_ON;
    }
    x->t.hex = hex;
    x->t.phase++;
    return GOES_ON;
}

static enum verdict text_byte(struct text_step *x, uint8_t byte)
{
    switch (x->t.phase) {
    case GR_TEXT_PLAIN: return plain_byte(x, byte);
    case GR_TEXT_BACKSLASH: {
        const char *at = byte ? strchr(ESCAPES, byte) : NULL;
        if (at) return feed(x, (uint8_t)MEANINGS[at - ESCAPES]);
        x->t.phase = GR_TEXT_HEX, x->t.hex = 0;
        return byte == 'u' && (!x->g->o.few_escapes || hex_alive(x, 0, 4)) ? GOES_ON : DEAD;
    }
    case GR_TEXT_LOW_BACKSLASH: x->t.phase = GR_TEXT_LOW_U; return byte == '\\' ? GOES_ON : DEAD;
    case GR_TEXT_LOW_U: x->t.phase = GR_TEXT_LOW_HEX; return byte == 'u' ? GOES_ON : DEAD;
    default: return hex_byte(x, byte);
    }
}

/* What is done gives way to its parent. */
static void pop(struct gr_state *s, uint32_t c, struct gr_list *to)
{
    uint32_t p = gr_settle(s, s->configs[c].parent, 1);
    if (p != GR_NONE) gr_add_config(s, p, to);
}

static void step_string(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    const struct gr_config *x = &s->configs[c];
    uint32_t where = x->where, parent = x->parent;
    const struct gr_string *str = &s->g->strings[gr_number_of(where)];
    struct text_step t = {s->g, str, gr_text_unpack(x->data), NULL, NULL, 0};
    enum verdict v = text_byte(&t, byte);
    if (v == GOES_ON) gr_add(s, where, gr_text_pack(t.t), parent, to);
    if (v == CLOSED && s->g->states[str->start + t.t.state].label && t.t.count >= str->min_len)
        pop(s, c, to);
}

/* ---- objects ---- */

/* Record: keys so far and fulfilled wishes, a bit for each named key, hashes of the others. */
static const uint64_t *record(const struct gr_state *s, uint32_t r)
{
    return s->words + s->records[r].at;
}
static uint32_t keys_so_far(const uint64_t *w) { return (uint32_t)w[0]; }
static uint32_t fulfilled(const uint64_t *w) { return (uint32_t)(w[0] >> 32); }

static uint32_t bits_in(uint64_t x)
{
    uint32_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

static uint32_t required_left(const struct gr_object *o, const uint64_t *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_words; i++) n += bits_in(o->required[i] & ~w[1 + i]);
    return n;
}

static bool wishes_left(const struct gr_object *o, const uint64_t *w)
{
    return fulfilled(w) != (1u << o->n_wishes) - 1;
}

static bool may_close(const struct gr_object *o, const uint64_t *w)
{
    return keys_so_far(w) >= o->min && !required_left(o, w) && !wishes_left(o, w);
}

enum { MAX_WORDS = 4096, MAX_AHEAD = 256 };

/* Of an object whose keys are told apart: was this one there before? */
static bool key_known(const struct gr_object *o, const uint64_t *w, uint32_t n, uint64_t hash)
{
    for (uint32_t i = 1 + o->n_words; i < n; i++)
        if (w[i] == hash) return true;
    return false;
}

/* A key that has begun: where its text stands, as JSON has it. */
struct key_text {
    struct gr_state *s;
    const struct gr_object *o;
    uint32_t record, from;
};

/* One byte of a key's text as JSON; returns how many it takes. */
static uint32_t put_byte(uint8_t *out, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    if (c >= 0x20 && c != '"' && c != '\\') {
        *out = c;
        return 1;
    }
    const uint8_t code[] = {'\\', 'u', '0', '0', (uint8_t)hex[c >> 4], (uint8_t)hex[c & 15]};
    memcpy(out, code, sizeof code);
    return sizeof code;
}

/* Is there a key from this state on, its text so far ending at `end`, that was not there before? */
static bool new_key_ahead(const struct key_text *t, uint32_t state, uint32_t end, unsigned depth)
{
    const struct gr_grammar *g = t->s->g;
    const struct gr_object *o = t->o;
    uint32_t start = g->strings[o->key].start, label = g->states[start + state].label;
    const struct gr_record *r = &t->s->records[t->record];
    if (label && o->classes[label - 1].name == GR_NO_NAME && o->classes[label - 1].possible &&
        !key_known(o, record(t->s, t->record), r->n,
                   gr_string_hash(t->s->text + t->from, end - t->from)))
        return true;
    /* Without memory, or too far ahead: it may come to a dead end. */
    if (depth == MAX_AHEAD || !gr_text_reserve(t->s, end + 8 - t->s->n_text)) return true;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t next = gr_next(g, start + state, (uint8_t)byte);
        if (!next || !o->open[next - start]) continue;
        uint32_t n = put_byte(t->s->text + end, (uint8_t)byte);
        if (new_key_ahead(t, next - start, end + n, depth + 1)) return true;
    }
    return false;
}

static uint32_t known_keys(const struct gr_state *s, const struct gr_object *o, uint32_t r)
{
    return s->records[r].n - 1 - o->n_words;
}

/* Can a key whose automaton is in this state still become one that fits? Without its text only where
 * there are more such keys than were there before. */
static bool key_alive(const struct gr_object *o, const uint64_t *w, uint32_t n_known, uint32_t state,
                      const struct key_text *text)
{
    uint32_t room = o->max == GR_LEN_MANY ? GR_LEN_MANY : o->max - keys_so_far(w);
    uint32_t left = required_left(o, w);
    bool wish = wishes_left(o, w), any = room > left + wish || (wish && room > left);
    if (!room) return false;
    bool open = o->open[state] && any;
    if (open && (!o->ahead || o->ahead[state] > n_known)) return true;
    const uint64_t *reach = o->reach + (size_t)state * o->n_words;
    for (uint32_t i = 0; i < o->n_words; i++) {
        uint64_t can = reach[i] & o->allowed[i] & ~w[1 + i];
        if (!any) can &= o->required[i];
        if (can) return true;
    }
    return open && text && new_key_ahead(text, state, text->s->n_text + 1, 0);
}

bool gr_key_alive(struct gr_state *s, const struct gr_object *o, uint32_t frame, uint32_t state,
                  uint32_t end, uint32_t n)
{
    uint32_t r = gr_frame_unpack(s->configs[frame].data).record, before = s->n_text;
    struct key_text t = {s, o, r, end - n};
    s->n_text = end - 1;
    bool alive = key_alive(o, record(s, r), known_keys(s, o, r), state, &t);
    s->n_text = before;
    return alive;
}

bool gr_key_open(const struct gr_state *s, const struct gr_object *o, uint32_t frame)
{
    uint32_t r = gr_frame_unpack(s->configs[frame].data).record;
    const uint64_t *w = record(s, r);
    uint32_t room = o->max == GR_LEN_MANY ? GR_LEN_MANY : o->max - keys_so_far(w);
    uint32_t left = required_left(o, w);
    bool wish = wishes_left(o, w);
    if (o->ahead && o->least <= known_keys(s, o, r)) return false;
    return room > left + wish || (wish && room > left);
}

static bool class_fits(const struct gr_object *o, const struct gr_key_class *k, const uint64_t *w)
{
    uint32_t room = o->max == GR_LEN_MANY ? GR_LEN_MANY : o->max - keys_so_far(w);
    uint32_t left = required_left(o, w);
    bool wish = wishes_left(o, w);
    if (!k->possible || !room) return false;
    if (k->name == GR_NO_NAME) return room > left + wish || (wish && room > left);
    if (gr_bit(w + 1, k->name)) return false;
    return room > left + wish || (wish && room > left) || gr_bit(o->required, k->name);
}

/* The key has ended: what its value may be. One configuration for each set of wishes that this
 * member is to fulfil. */
static void finish_key(struct gr_state *s, uint32_t number, uint32_t frame, struct gr_text_at t,
                       struct gr_list *to)
{
    const struct gr_object *o = &s->g->objects[number];
    const struct gr_string *str = &s->g->strings[o->key];
    uint32_t label = s->g->states[str->start + t.state].label;
    struct gr_frame_at f = gr_frame_unpack(s->configs[frame].data);
    uint32_t parent = s->configs[frame].parent, n = s->records[f.record].n;
    uint64_t w[MAX_WORDS + 1];
    if (!label) return;
    const struct gr_key_class *k = &o->classes[label - 1];
    if (n > MAX_WORDS) {
        s->failed = true;
        return;
    }
    memcpy(w, record(s, f.record), n * sizeof *w);
    if (!class_fits(o, k, w)) return;
    if (k->name != GR_NO_NAME) {
        gr_bit_set(w + 1, k->name);
    } else if (o->distinct) {
        uint64_t hash = gr_string_hash(s->text + s->n_text - t.count, t.count);
        if (key_known(o, w, n, hash)) return;
        w[n++] = hash;
    }
    /* Counts above what matters are one: they would tell equal states apart. */
    uint32_t most = o->max != GR_LEN_MANY ? o->max : o->min, had = fulfilled(w);
    uint32_t count = keys_so_far(w) < most ? keys_so_far(w) + 1 : most;
    uint32_t at = 0;
    for (uint32_t set = 0; set < 1u << GR_MAX_WISHES; set++) {
        if (set & ~k->wants) continue;
        uint32_t value = k->values[at++];
        if ((set & had) || !s->g->values[value].possible) continue;
        w[0] = count | (uint64_t)(had | set) << 32;
        struct gr_frame_at next = {gr_record_get(s, w, n), GR_COLON, 0, value};
        if (next.record == GR_NONE) return;
        gr_add(s, gr_where_of(GR_AT_OBJECT, number), gr_frame_pack(next), parent, to);
    }
}

static void step_key(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    const struct gr_config *x = &s->configs[c];
    uint32_t where = x->where, frame = x->parent, number = gr_number_of(where);
    const struct gr_object *o = &s->g->objects[number];
    uint32_t at = gr_frame_unpack(s->configs[frame].data).record, known = known_keys(s, o, at);
    const uint64_t *w = record(s, at);
    struct text_step t = {s->g, &s->g->strings[o->key], gr_text_unpack(x->data), o, w, known};
    uint32_t length = t.t.count;
    struct key_text so_far = {s, o, at, s->n_text - length};
    switch (text_byte(&t, byte)) {
    case DEAD: return;
    case CLOSED: finish_key(s, number, frame, t.t, to); return;
    case GOES_ON: break;
    }
    t.t.count = length < GR_LEN_MANY ? length + 1 : length;
    if (!o->distinct) t.t.count = 0; /* nobody asks: equal states stay equal */
    if (t.t.phase == GR_TEXT_PLAIN && !key_alive(o, w, known, t.t.state, &so_far)) return;
    gr_add(s, where, gr_text_pack(t.t), frame, to);
}

static void add_space(struct gr_state *s, uint32_t c, struct gr_frame_at f, struct gr_list *to)
{
    if (f.space >= s->g->o.max_space) return;
    f.space++;
    gr_add(s, s->configs[c].where, gr_frame_pack(f), s->configs[c].parent, to);
}

static void step_object(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    uint32_t where = s->configs[c].where, parent = s->configs[c].parent;
    struct gr_frame_at f = gr_frame_unpack(s->configs[c].data);
    const struct gr_object *o = &s->g->objects[gr_number_of(where)];
    const uint64_t *w = record(s, f.record);
    uint32_t known = known_keys(s, o, f.record);
    struct key_text none = {s, o, f.record, s->n_text + 1};
    if (is_space(byte)) {
        add_space(s, c, f, to);
        return;
    }
    f.space = 0;
    if (f.phase == GR_COLON) {
        uint32_t value = f.value;
        f.phase = GR_AFTER, f.value = 0;
        if (byte != ':') return;
        uint32_t frame = gr_config_get(s, where, gr_frame_pack(f), parent);
        if (frame != GR_NONE) gr_add(s, gr_where_of(GR_AT_VALUE, value), 0, frame, to);
    } else if (byte == '}' && f.phase != GR_NEXT) {
        if (may_close(o, w)) pop(s, c, to);
    } else if (byte == ',' && f.phase == GR_AFTER) {
        f.phase = GR_NEXT;
        if (key_alive(o, w, known, 0, &none)) gr_add(s, where, gr_frame_pack(f), parent, to);
    } else if (byte == '"' && f.phase != GR_AFTER && key_alive(o, w, known, 0, &none)) {
        uint32_t frame = gr_config_get(s, where, gr_frame_pack(f), parent);
        if (frame != GR_NONE) gr_add(s, gr_where_of(GR_AT_KEY, gr_number_of(where)), 0, frame, to);
    }
}

/* ---- arrays ---- */

/* Record: items so far and where the last one begins, counts of the contains, hashes. */
enum { ARRAY_WORDS = 2 };
static uint32_t items_so_far(const uint64_t *w) { return (uint32_t)w[0]; }
static uint32_t counted(const uint64_t *w, uint32_t i) { return (uint32_t)(w[1] >> 32 * i); }

static bool array_may_close(const struct gr_array *a, const uint64_t *w)
{
    if (items_so_far(w) < a->min) return false;
    for (uint32_t i = 0; i < a->n_contains; i++)
        if (counted(w, i) < a->contains[i].min) return false;
    return true;
}

/* Counts the next item for the contains in `set`; false when that cannot come out right. */
static bool count_item(const struct gr_array *a, uint64_t *w, uint32_t set)
{
    uint32_t n = items_so_far(w), c[GR_MAX_CONTAINS] = {counted(w, 0), counted(w, 1)};
    uint32_t left = a->max == GR_LEN_MANY ? GR_LEN_MANY : a->max - n - 1;
    for (uint32_t i = 0; i < a->n_contains; i++) {
        const struct gr_contains *x = &a->contains[i];
        uint32_t most = x->max != GR_LEN_MANY ? x->max + 1 : x->min;
        if (set >> i & 1 && c[i] < most) c[i]++;
        if (x->max != GR_LEN_MANY && c[i] > x->max) return false;
        if (c[i] < x->min && x->min - c[i] > left) return false;
    }
    uint32_t most = a->max != GR_LEN_MANY ? a->max : a->min > a->n_places ? a->min : a->n_places;
    w[0] = n < most ? n + 1 : most;
    w[1] = c[0] | (uint64_t)c[1] << 32;
    return true;
}

/* Every way in which the next item may count; its first byte is read at once. */
static void begin_item(struct gr_state *s, uint32_t number, struct gr_frame_at f, uint32_t parent,
                       uint8_t byte, struct gr_list *to)
{
    const struct gr_array *a = &s->g->arrays[number];
    uint32_t n = s->records[f.record].n, had = items_so_far(record(s, f.record));
    uint32_t place = had < a->n_places ? had : a->n_places - 1;
    uint64_t w[MAX_WORDS + 1];
    if (a->max != GR_LEN_MANY && had >= a->max) return;
    if (n > MAX_WORDS) {
        s->failed = true;
        return;
    }
    for (uint32_t set = 0; set < 1u << a->n_contains; set++) {
        uint32_t node = a->items[(place << a->n_contains) + set];
        if (!s->g->values[node].possible || !gr_bit(s->g->values[node].first, byte)) continue;
        memcpy(w, record(s, f.record), n * sizeof *w);
        if (!count_item(a, w, set)) continue;
        if (a->unique) w[0] |= (uint64_t)(s->n_text + 1) << 32;
        struct gr_frame_at next = {gr_record_get(s, w, n), GR_AFTER, 0, 0};
        if (next.record == GR_NONE) return;
        uint32_t frame =
            gr_config_get(s, gr_where_of(GR_AT_ARRAY, number), gr_frame_pack(next), parent);
        if (frame == GR_NONE) return;
        uint32_t value = gr_config_get(s, gr_where_of(GR_AT_VALUE, node), 0, frame);
        if (value != GR_NONE) gr_step_config(s, value, byte, to);
    }
}

uint32_t gr_settle(struct gr_state *s, uint32_t p, uint32_t more)
{
    const struct gr_config *x = &s->configs[p];
    uint64_t w[MAX_WORDS + 1];
    if (gr_kind_of(x->where) != GR_AT_ARRAY || !s->g->arrays[gr_number_of(x->where)].unique)
        return p;
    struct gr_frame_at f = gr_frame_unpack(x->data);
    const uint64_t *had = record(s, f.record);
    uint32_t n = s->records[f.record].n, begin = (uint32_t)(had[0] >> 32), where = x->where;
    uint32_t parent = x->parent;
    if (!begin) return p; /* settled before */
    if (n > MAX_WORDS) {
        s->failed = true;
        return GR_NONE;
    }
    uint64_t hash = gr_json_hash(s->text + begin - 1, s->n_text + more - (begin - 1));
    for (uint32_t i = ARRAY_WORDS; i < n; i++)
        if (had[i] == hash) return GR_NONE;
    memcpy(w, had, n * sizeof *w);
    w[0] &= UINT32_MAX;
    w[n++] = hash;
    f.record = gr_record_get(s, w, n);
    if (f.record == GR_NONE) return GR_NONE;
    return gr_config_get(s, where, gr_frame_pack(f), parent);
}

static void step_array(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    uint32_t where = s->configs[c].where, parent = s->configs[c].parent;
    struct gr_frame_at f = gr_frame_unpack(s->configs[c].data);
    const struct gr_array *a = &s->g->arrays[gr_number_of(where)];
    const uint64_t *w = record(s, f.record);
    if (is_space(byte)) {
        add_space(s, c, f, to);
        return;
    }
    f.space = 0;
    if (byte == ']' && f.phase != GR_NEXT) {
        if (array_may_close(a, w)) pop(s, c, to);
    } else if (f.phase == GR_AFTER) {
        f.phase = GR_NEXT;
        if (byte == ',' && (a->max == GR_LEN_MANY || items_so_far(w) < a->max))
            gr_add(s, where, gr_frame_pack(f), parent, to);
    } else {
        begin_item(s, gr_number_of(where), f, parent, byte, to);
    }
}

/* ---- values ---- */

static void add_frame(struct gr_state *s, enum gr_where kind, uint32_t number, uint32_t n_words,
                      uint32_t parent, struct gr_list *to)
{
    uint64_t zeros[MAX_WORDS];
    memset(zeros, 0, n_words * sizeof *zeros);
    struct gr_frame_at f = {gr_record_get(s, zeros, n_words), GR_FIRST, 0, 0};
    if (f.record != GR_NONE) gr_add(s, gr_where_of(kind, number), gr_frame_pack(f), parent, to);
}

static void begin_value(struct gr_state *s, const struct gr_value *v, uint8_t byte,
                        uint32_t parent, struct gr_list *to)
{
    const struct gr_grammar *g = s->g;
    switch (byte) {
    case '"':
        for (uint32_t i = 0; i < v->n_strings; i++)
            gr_add(s, gr_where_of(GR_AT_STRING, v->strings[i]), 0, parent, to);
        break;
    case '{':
        for (uint32_t i = 0; i < v->n_objects; i++)
            if (g->objects[v->objects[i]].possible)
                add_frame(s, GR_AT_OBJECT, v->objects[i], 1 + g->objects[v->objects[i]].n_words,
                          parent, to);
        break;
    case '[':
        for (uint32_t i = 0; i < v->n_arrays; i++)
            if (g->arrays[v->arrays[i]].possible)
                add_frame(s, GR_AT_ARRAY, v->arrays[i], ARRAY_WORDS, parent, to);
        break;
    case 'n':
    case 't':
    case 'f': gr_add(s, gr_where_of(GR_AT_WORD, byte), 1, parent, to); break;
    default: {
        uint32_t next = gr_next(g, v->number, byte);
        if (next) gr_add(s, gr_where_of(GR_AT_NUMBER, next), 0, parent, to);
    }
    }
}

static void step_value(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    const struct gr_config *x = &s->configs[c];
    const struct gr_value *v = &s->g->values[gr_number_of(x->where)];
    if (is_space(byte)) {
        if (x->data < s->g->o.max_space) gr_add(s, x->where, x->data + 1, x->parent, to);
    } else if (gr_bit(v->first, byte)) {
        begin_value(s, v, byte, x->parent, to);
    }
}

static void step_word(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    const struct gr_config *x = &s->configs[c];
    uint32_t letter = gr_number_of(x->where);
    const char *word = letter == 'n' ? "null" : letter == 't' ? "true" : "false";
    if ((uint8_t)word[x->data] != byte) return;
    if (word[x->data + 1])
        gr_add(s, x->where, x->data + 1, x->parent, to);
    else
        pop(s, c, to);
}

void gr_step_json(struct gr_state *s, uint32_t c, uint8_t byte, struct gr_list *to)
{
    uint32_t where = s->configs[c].where, parent = s->configs[c].parent;
    switch (gr_kind_of(where)) {
    case GR_AT_VALUE: step_value(s, c, byte, to); break;
    case GR_AT_WORD: step_word(s, c, byte, to); break;
    case GR_AT_NUMBER: {
        uint32_t next = gr_next(s->g, gr_number_of(where), byte);
        if (next) gr_add(s, gr_where_of(GR_AT_NUMBER, next), 0, parent, to);
        if (s->g->states[gr_number_of(where)].label) gr_step_parent(s, c, byte, to);
        break;
    }
    case GR_AT_STRING: step_string(s, c, byte, to); break;
    case GR_AT_KEY: step_key(s, c, byte, to); break;
    case GR_AT_OBJECT: step_object(s, c, byte, to); break;
    case GR_AT_ARRAY: step_array(s, c, byte, to); break;
    case GR_AT_OUTSIDE: s->outside = true; break;
    case GR_AT_END:
    case GR_AT_RULE: break;
    }
}
