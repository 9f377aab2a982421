// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"

enum { MOST_SIZES = 1025, FORGOTTEN = 300, DOUBTED = 8 /* steps after which a size is tried again */ };
static const double CURIOSITY = 1.25, LEAST_SLICE = 0.25;

struct share {
    uint64_t client, got; /* got: tokens, from a common beginning */
    uint32_t n_jobs;      /* 0: a free slot */
};

/* Steps of so many tokens. */
struct size {
    double alone_s; /* of answers alone; 0: none yet */
    double s;       /* of answers and prompts; where prompts are apart, of the answers beside one */
    double least;   /* scratch: of the known ones from here on */
    uint64_t at;    /* the last one */
};

struct sched {
    struct lm_generator *g;
    struct sched_options o;
    struct sched_job *queue; /* oldest first */
    struct sched_job **running;
    struct share *shares; /* [max_queue + max_running] */
    uint32_t n_queue, n_running, n_shares;
    uint64_t arrivals;
    bool draining;
    double (*clock)(void);
    struct size *sizes; /* by the number of tokens */
    struct size *doubtful; /* the one size that took too long, so far; or NULL */
    double most;           /* seconds that a step may take */
    uint32_t n_sizes, budget;
    bool apart; /* prompts are computed in slices of time */
    uint64_t steps;
    struct sched_counts counts;
};

int sched_create(struct lm_generator *g, const struct sched_options *o, struct sched **out,
                 struct infr_status *st)
{
    struct sched *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return rt_fail_memory(st, "the scheduler", sizeof *s);
    s->g = g, s->o = *o, s->budget = o->chunk;
    s->n_shares = o->max_queue + o->max_running;
    s->running = calloc(2 * (size_t)o->max_running, sizeof *s->running);
    s->shares = calloc(s->n_shares, sizeof *s->shares);
    uint32_t most = o->chunk > o->max_running ? o->chunk : o->max_running;
    s->n_sizes = most < MOST_SIZES ? most + 1 : MOST_SIZES;
    s->sizes = calloc(s->n_sizes, sizeof *s->sizes);
    if (!s->running || !s->shares || !s->sizes) {
        sched_destroy(s);
        return rt_fail_memory(st, "the scheduler", (size_t)o->max_queue * sizeof(struct share));
    }
    *out = s;
    return INFR_OK;
}

void sched_destroy(struct sched *s)
{
    if (!s) return;
    free(s->running);
    free(s->shares);
    free(s->sizes);
    free(s);
}

/* ---- shares ---- */

/* The client's share, or a new one that begins where the least served client is. */
static uint32_t find_share(struct sched *s, uint64_t client)
{
    uint32_t free_at = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_shares; i++) {
        struct share *h = &s->shares[i];
        if (h->n_jobs && h->client == client) return i;
        if (!h->n_jobs) free_at = i;
        if (h->n_jobs && h->got < least) least = h->got;
    }
    s->shares[free_at] = (struct share){client, least == UINT64_MAX ? 0 : least, 0};
    s->counts.clients++;
    return free_at;
}

static void leave_share(struct sched *s, struct sched_job *j)
{
    if (!--s->shares[j->client_at].n_jobs) s->counts.clients--;
}

/* ---- submission ---- */

static void on_event(void *user, const struct lm_event *e)
{
    struct sched_job *j = user;
    struct sched *s = j->sched;
    if (!e->of_prompt && e->token != LM_NO_TOKEN) {
        if (!j->first_token) j->first_token = s->clock();
        s->shares[j->client_at].got++;
    }
    if (j->on_event) j->on_event(j->event_user, e);
}

enum sched_verdict sched_submit(struct sched *s, struct sched_job *const *jobs, uint32_t n,
                                double now)
{
    if (s->draining) return SCHED_DRAINING;
    /* free places count: a burst on an idle server is not refused */
    uint32_t room = s->o.max_queue + s->o.max_running - s->n_queue - s->n_running;
    if (n > room) {
        s->counts.refused += n;
        return SCHED_FULL;
    }
    struct sched_job **last = &s->queue;
    while (*last) last = &(*last)->next;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_job *j = jobs[i];
        j->sched = s, j->request = NULL, j->next = NULL, j->cancel = false;
        j->on_event = j->desc.on_event, j->event_user = j->desc.user;
        j->desc.on_event = on_event, j->desc.user = j;
        j->end = SCHED_NOT_YET, j->finish = LM_RUNNING, j->error = NULL;
        j->n_prompt = j->desc.n_prompt, j->n_cached = j->n_generated = 0;
        j->submitted = now, j->started = j->first_token = j->ended = 0;
        j->arrival = s->arrivals++;
        j->client_at = find_share(s, j->client);
        s->shares[j->client_at].n_jobs++;
        *last = j, last = &j->next;
    }
    s->n_queue += n;
    s->counts.accepted += n;
    return SCHED_ACCEPTED;
}

void sched_cancel(struct sched_job *job)
{
    job->cancel = true;
    if (job->request) lm_request_cancel(job->request);
}

void sched_drain(struct sched *s) { s->draining = true; }

void sched_cancel_all(struct sched *s)
{
    for (struct sched_job *j = s->queue; j; j = j->next) sched_cancel(j);
    for (uint32_t i = 0; i < s->n_running; i++) sched_cancel(s->running[i]);
}

/* ---- ends ---- */

static void end(struct sched *s, struct sched_job *j, enum sched_end how, const char *error)
{
    uint64_t *const counts[] = {NULL, &s->counts.done, &s->counts.cancelled, &s->counts.timeouts,
                                &s->counts.errors};
    j->end = how;
    j->error = error;
    j->ended = s->clock();
    if (j->request) {
        lm_request_usage(j->request, &j->n_prompt, &j->n_cached, &j->n_generated);
        lm_request_destroy(j->request);
        j->request = NULL;
    }
    ++*counts[how];
    s->counts.prompt_tokens += j->n_prompt;
    s->counts.cached_tokens += j->n_cached;
    s->counts.generated_tokens += j->n_generated;
    leave_share(s, j);
    j->on_end(j);
}

static struct sched_job *unlink_job(struct sched *s, struct sched_job **link)
{
    struct sched_job *j = *link;
    *link = j->next;
    j->next = NULL;
    s->n_queue--;
    return j;
}

static void end_queued(struct sched *s, double now)
{
    for (struct sched_job **link = &s->queue; *link;) {
        struct sched_job *j = *link;
        bool late = j->deadline > 0 && j->deadline <= now;
        if (j->cancel || late)
            end(s, unlink_job(s, link), j->cancel ? SCHED_CANCELLED : SCHED_TIMEOUT,
                late ? "the request waited until its deadline" : NULL);
        else
            link = &j->next;
    }
}

static void end_finished(struct sched *s, double now)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sched_job *j = s->running[i];
        j->finish = lm_request_finish(j->request);
        bool late = j->deadline > 0 && j->deadline <= now;
        if (j->finish == LM_RUNNING && !late) {
            s->running[n++] = j;
            continue;
        }
        if (j->finish == LM_RUNNING)
            end(s, j, SCHED_TIMEOUT, "the answer was not complete at its deadline");
        else if (j->finish == LM_FINISH_ERROR)
            end(s, j, SCHED_ERROR, lm_request_error(j->request));
        else
            end(s, j, j->finish == LM_FINISH_CANCELLED ? SCHED_CANCELLED : SCHED_DONE, NULL);
    }
    s->n_running = n;
}

double sched_next_deadline(const struct sched *s)
{
    double first = 0;
    for (const struct sched_job *j = s->queue; j; j = j->next)
        if (j->deadline > 0 && (!first || j->deadline < first)) first = j->deadline;
    for (uint32_t i = 0; i < s->n_running; i++) {
        double d = s->running[i]->deadline;
        if (d > 0 && (!first || d < first)) first = d;
    }
    return first;
}

/* ---- places ---- */

static bool better(const struct sched *s, const struct sched_job *a, const struct sched_job *b)
{
    if (a->desc.priority != b->desc.priority) return a->desc.priority < b->desc.priority;
    uint64_t x = s->shares[a->client_at].got, y = s->shares[b->client_at].got;
    if (a->client_at != b->client_at && x != y) return x < y;
    return a->arrival < b->arrival;
}

static struct sched_job **pick(struct sched *s)
{
    struct sched_job **best = &s->queue;
    for (struct sched_job **link = &s->queue; *link; link = &(*link)->next)
        if (better(s, *link, *best)) best = link;
    return best;
}

/* Is a running job worse in priority? The generator lets it wait for the better one. */
static bool outranks(const struct sched *s, const struct sched_job *j)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->desc.priority > j->desc.priority) return true;
    return false;
}

/*
 * A better priority is submitted beyond the places, one more at a time than there are: the
 * generator makes the last one in turn wait.
 */
static void place(struct sched *s, double now)
{
    struct infr_status st;
    while (s->queue) {
        struct sched_job **link = pick(s);
        bool place_free = s->n_running < s->o.max_running;
        if (!place_free && (s->n_running >= 2 * s->o.max_running || !outranks(s, *link))) return;
        struct sched_job *j = unlink_job(s, link);
        j->started = now;
        if (lm_generator_submit(s->g, &j->desc, &j->request, &st)) {
            memcpy(j->note, st.note, sizeof j->note - 1);
            j->note[sizeof j->note - 1] = 0;
            end(s, j, SCHED_ERROR, j->note);
            continue;
        }
        s->shares[j->client_at].got += j->n_prompt;
        s->running[s->n_running++] = j;
    }
}

/* ---- the budget of a step ---- */

/* Towards x; what the machine does beside it makes some steps long, which shall not count for much. */
static void blend(double *t, double x)
{
    double d = x - *t;
    if (!(*t > 0)) *t = x;
    else if (d < 0) *t += 0.5 * d;
    else *t += d < *t / 2 ? 0.2 * d : 0.1 * *t;
}

static bool known(const struct sched *s, const struct size *x)
{
    return x->s > 0 && s->steps - x->at < (x == s->doubtful ? DOUBTED : FORGOTTEN);
}

/*
 * A size that is tried and takes too long may have been held up: it is doubted, which means tried again soon,
 * until it or another one takes too long too.
 */
static void learn_size(struct sched *s, struct size *x, double seconds)
{
    bool again = x == s->doubtful;
    if (known(s, x) && !again) {
        blend(&x->s, seconds);
    } else {
        bool too_long = seconds > s->most;
        if (too_long) s->doubtful = s->doubtful ? NULL : x;
        else if (again) s->doubtful = NULL;
        x->s = seconds;
    }
    x->at = s->steps;
}

static void learn(struct sched *s, double seconds)
{
    struct lm_counts c;
    lm_generator_get_counts(s->g, &c);
    s->steps++;
    if (s->apart) {
        struct size *x = &s->sizes[c.step_tokens < s->n_sizes ? c.step_tokens : s->n_sizes - 1];
        if (c.step_answers) blend(c.step_apart ? &x->s : &x->alone_s, c.answers_s);
        return;
    }
    if (!c.step_answers || c.step_tokens >= s->n_sizes) return;
    struct size *x = &s->sizes[c.step_tokens];
    if (c.step_answers == c.step_tokens) blend(&x->alone_s, seconds);
    else learn_size(s, x, seconds);
}

/* Seconds that so many answers take alone, or beside prompts, by those that were measured; 0: none was. */
static double seconds_of(const struct sched *s, uint32_t answers, bool beside)
{
    uint32_t k = answers < s->n_sizes ? answers : s->n_sizes - 1, last = s->n_sizes - 1;
    for (uint32_t i = 0; i <= last; i++) { /* the next smaller one, else the next larger one */
        uint32_t n = i <= k ? k - i : i;
        double t = beside ? s->sizes[n].s : s->sizes[n].alone_s;
        if (n && t > 0) return n < answers ? t * answers / n : t;
    }
    return 0;
}

/*
 * What prompts get of a step, so that it takes `stretch` times what the answers take alone. Beside a prompt they take longer (the caches
 * hold less of the weights); a quarter of that is the least, so that prompts get on.
 */
static double slice_of(const struct sched *s, uint32_t answers)
{
    double alone = seconds_of(s, answers, false), beside = seconds_of(s, answers, true);
    if (!(beside > 0)) beside = alone;
    if (!(alone > 0) || alone > beside) alone = beside;
    return fmax(s->o.stretch * alone - beside, LEAST_SLICE * beside);
}

/*
 * For models that do batches whole: so many tokens, answers and prompts together, that prompts get on fastest while the step takes no
 * longer than `stretch` times what the answers alone take. Times are measured for each size, as kernels
 * have sizes that suit them (the time of a step jumps where a kernel of more rows takes over). No size
 * takes longer than a larger one: where it seems to, something held up its step, and the larger one's time
 * counts. A size that was not tried for a while may take as much more than the next smaller one as it is
 * larger, and is tried when that is not far beyond the bound.
 */
static uint32_t best_size(struct sched *s, uint32_t answers)
{
    uint32_t best = answers + 1;
    double t = seconds_of(s, answers, false), rate = 0, least = INFINITY;
    if (!(t > 0)) return answers + (s->steps & 1); /* to be measured: steps without prompts */
    s->most = s->o.stretch * t;
    for (uint32_t n = s->n_sizes - 1; n > answers; n--) {
        struct size *x = &s->sizes[n];
        if (known(s, x) && x->s < least) least = x->s;
        x->least = least;
    }
    for (uint32_t n = answers + 1; n < s->n_sizes; n++) {
        const struct size *x = &s->sizes[n];
        bool sure = known(s, x);
        t = sure ? x->least : fmin(t * n / (n - 1), x->least);
        if (t > (sure ? s->most : CURIOSITY * s->most)) break;
        if ((n - answers) / t <= rate) continue;
        rate = (n - answers) / t;
        best = n;
    }
    return best;
}

static void set_budget(struct sched *s)
{
    uint32_t answers = 0;
    bool bound = s->o.stretch > 1;
    for (uint32_t i = 0; i < s->n_running; i++) answers += s->running[i]->first_token > 0;
    s->budget = s->o.chunk;
    s->apart = bound && lm_generator_set_slice(s->g, slice_of(s, answers), s->clock);
    if (!s->apart && answers && bound && answers + 1 < s->n_sizes) s->budget = best_size(s, answers);
    if (s->budget > s->o.chunk) s->budget = s->o.chunk;
    lm_generator_set_chunk(s->g, s->budget);
}

/* ---- steps ---- */

void sched_step(struct sched *s, double (*clock)(void), bool *more, struct infr_status *failed)
{
    bool busy;
    s->clock = clock;
    *failed = (struct infr_status){0};
    double before = clock();
    end_queued(s, before);
    place(s, before);
    set_budget(s);
    lm_generator_step(s->g, &busy, failed);
    double after = clock();
    if (!failed->code) learn(s, after - before);
    end_finished(s, after);
    *more = s->n_running || s->queue;
}

void sched_get_counts(const struct sched *s, struct sched_counts *out)
{
    *out = s->counts;
    out->queued = s->n_queue, out->running = s->n_running;
    out->step_budget = s->budget;
    lm_generator_get_counts(s->g, &out->generator);
}
