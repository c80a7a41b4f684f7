/* Attention for a step of decoding, in float32: one query for each of many hypotheses.
 *
 * Each pair of a hypothesis and a head is a row, and any LANES rows are solved side by side (block.h). When hypotheses
 * are reordered, the keys and values of earlier steps stay where they were written: a table says, for each hypothesis
 * and position, in which place they are.
 */

typedef struct {
    long hypotheses, heads, keys, size; /* keys: of earlier steps, and the new one if there is one */
    float scale;                        /* of the scores */
    const float *epsilon;               /* (heads,) */
    const float *query;                 /* (hypotheses, heads, size), like output, new_key and new_value */
    const float *new_key, *new_value;   /* to be appended to the others; or null */
    float *output;
    float *probs;           /* (hypotheses, heads, keys); or null */
    float *key, *value;     /* a matrix for each place and head, with a row for each position */
    long place, head, row;  /* their strides in numbers */
    int32_t *origins;       /* (hypotheses, room): the place of each position of a hypothesis; or (hypotheses,), with
                             * room 0, if all positions of a hypothesis are in one place */
    long room;              /* how many positions a place has room for */
    long beam;              /* how many consecutive hypotheses are likely to have much in common; divides hypotheses */
    const float *padding;   /* (places, keys), not 0 at padding; or null, as it must be unless room is 0 */
} Step;

#define KNOWN 16

/* A thread's working memory; `rows` has the scores, their positions and the query */
typedef struct {
    Rows rows;
    long *offsets;             /* (KNOWN, keys): offsets of some hypotheses' positions in keys and values of head 0 */
    long hypotheses[KNOWN]; /* the hypotheses they belong to; -1 at the start */
} StepWork;

/* What a row is. Rows are ordered so that what the hypotheses of a beam share is read only once. */
typedef struct {
    long hypothesis, head, number; /* number: in the order of the output */
} StepRow;

static inline StepRow step_row(const Step *step, long row)
{
    long beam = step->beam, hypothesis = row / (step->heads * beam) * beam + row % beam, head = row / beam % step->heads;
    return (StepRow){hypothesis, head, hypothesis * step->heads + head};
}

static int make_step_work(StepWork *work, const Step *step)
{
    long keys = up_to_lanes(step->keys);
    Rows *rows = &work->rows;
    *work = (StepWork){.rows.row = keys + LANES};
    for (int known = 0; known < KNOWN; known++) work->hypotheses[known] = -1;
    rows->block = make_block(keys + LANES, FORWARD_ARRAYS);
    rows->queries = aligned_alloc(sizeof(vec), up_to_lanes(step->size) * sizeof(float));
    rows->rows = aligned_alloc(sizeof(vec), LANES * rows->row * sizeof(float));
    rows->places = aligned_alloc(sizeof(vec), LANES * rows->row * sizeof(int32_t));
    work->offsets = malloc(KNOWN * keys * sizeof(long));
    return !(rows->block.memory && rows->queries && rows->rows && rows->places && work->offsets);
}

/* The offsets of the positions of a hypothesis; the last is repeated up to a whole vector */
static inline const long *offsets_of(StepWork *work, const Step *step, long hypothesis)
{
    long *offsets = work->offsets + hypothesis % KNOWN * up_to_lanes(step->keys);
    if (work->hypotheses[hypothesis % KNOWN] == hypothesis) return offsets;
    work->hypotheses[hypothesis % KNOWN] = hypothesis;
    const int32_t *origins = step->origins + hypothesis * (step->room ? step->room : 1);
    for (long i = 0; i < step->keys; i++) offsets[i] = origins[step->room ? i : 0] * step->place + i * step->row;
    for (long i = step->keys; i < up_to_lanes(step->keys); i++) offsets[i] = offsets[step->keys - 1];
    return offsets;
}

#define LINE 16 /* floats in a cache line */

/* Prefetches the keys of the row after `row`, which would otherwise be waited for one by one. Keys of the source are
 * shared by a beam, so they are prefetched once, for the next beam. */
static inline void fetch_keys(StepWork *work, const Step *step, long row)
{
    if (!step->room && row % step->beam) return;
    row += step->room ? 1 : step->beam;
    if (row >= step->hypotheses * step->heads) return;
    StepRow of = step_row(step, row);
    const long *offsets = offsets_of(work, step, of.hypothesis);
    const float *keys = step->key + of.head * step->head;
    for (long i = 0; i < step->keys; i++)
        for (long c = 0; c < step->size; c += LINE) __builtin_prefetch(keys + offsets[i] + c);
}

/* Prefetches a row's values at some positions, for later */
static inline void fetch_values(StepWork *work, const Step *step, StepRow of, const int32_t *positions, long number)
{
    const long *offsets = offsets_of(work, step, of.hypothesis);
    const float *values = step->value + of.head * step->head;
    for (long i = 0; i < number; i++)
        for (long c = 0; c < step->size; c += LINE) __builtin_prefetch(values + offsets[positions[i]] + c, 0, 2);
}

/* The scores of one query for the keys at `all_offsets`, and -infinity behind the last */
static inline void score_step(const Step *step, const float *query, const float *keys, const long *all_offsets,
                              float *scores)
{
    for (long first = 0; first < step->keys; first += LANES) {
        const long *offsets = all_offsets + first;
        vec sums[LANES];
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++) sums[k] = (vec){0};
        long c = 0;
        for (; c + LANES <= step->size; c += LANES) {
            vec part = *(const vec *)(query + c);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++) sums[k] += part * vec_at(keys + offsets[k] + c);
        }
        vec total = sum_across(sums);
        for (; c < step->size; c++)
            for (int k = 0; k < LANES; k++) total[k] += query[c] * keys[offsets[k] + c];
        *(vec *)(scores + first) = total;
    }
    for (long i = step->keys; i < up_to_lanes(step->keys); i++) scores[i] = -INFINITY;
}

/* Writes the output of one row, and its probabilities if wanted, from its weights at positions; NaN if it is broken */
static inline void put_step(StepWork *work, const Step *step, StepRow of, const float *weights,
                            const int32_t *positions, long number, int is_broken)
{
    float *out = step->output + of.number * step->size, *probs = step->probs ? step->probs + of.number * step->keys : 0;
    if (is_broken) {
        for (long c = 0; c < step->size; c++) out[c] = NAN;
        for (long i = 0; i < step->keys && probs; i++) probs[i] = NAN;
        return;
    }
    Matrix values = {step->value + of.head * step->head, 0};
    mix_row(weights, positions, number, values, offsets_of(work, step, of.hypothesis), step->size, out);
    if (!probs) return;
    memset(probs, 0, step->keys * sizeof(float));
    for (long i = 0; i < number; i++) probs[positions[i]] = weights[i];
}

/* The scores of one row, -infinity at padding. First puts its new key and value, if any, into the cache. */
static inline void begin_step(StepWork *work, const Step *step, StepRow of, float *scores)
{
    float *query = work->rows.queries;
    const long *offsets = offsets_of(work, step, of.hypothesis);
    if (step->new_key) {
        long to = of.head * step->head + offsets[step->keys - 1];
        memcpy(step->key + to, step->new_key + of.number * step->size, step->size * sizeof(float));
        memcpy(step->value + to, step->new_value + of.number * step->size, step->size * sizeof(float));
    }
    for (long c = 0; c < step->size; c++) query[c] = step->query[of.number * step->size + c] * step->scale;
    score_step(step, query, step->key + of.head * step->head, offsets, scores);
    if (!step->padding) return;
    const float *padding = step->padding + step->origins[of.hypothesis] * step->keys;
    for (long i = 0; i < step->keys; i++)
        if (padding[i] != 0) scores[i] = -INFINITY;
}

/* Turns the scores of a row into distances of the keys that can be in the support, and lists their positions. Returns
 * whether a score is NaN or +infinity. */
static inline int keep_step(const Step *step, float *row, float epsilon, int32_t *positions, int32_t *count)
{
    vec tops = tops_of_row(row, up_to_lanes(step->keys)), sum = {0};
    float top = -INFINITY;
    for (int k = 0; k < LANES; k++) top = tops[k] > top ? tops[k] : top;
    *count = 0;
    if (top == INFINITY || top == -INFINITY) return top == INFINITY;
    *count = keep_places(row, 0, step->keys, top, -1.0f / epsilon, row, positions, &sum);
    *(given_vec *)(row + *count) = all(-INFINITY); /* to_lanes reads whole vectors */
    return 0;
}

/* Attention of `count` rows, up to LANES, from `first` on */
static void attend_step(const Step *step, long first, int count, StepWork *work)
{
    Rows *rows = &work->rows;
    vec epsilon = all(1.0f);
    ivec broken = {0}, without = {0};
    StepRow of[LANES];
    for (int k = 0; k < LANES; k++) rows->block.counts[k] = 0;
    for (int k = 0; k < count; k++) {
        of[k] = step_row(step, first + k);
        float *row = rows->rows + k * rows->row, of_head = step->epsilon[of[k].head];
        int32_t *positions = rows->places + k * rows->row;
        if (of_head != of_head) without[k] = -1; /* solved with another epsilon, then set to NaN */
        else epsilon[k] = of_head < LEAST_EPSILON ? LEAST_EPSILON : of_head;
        begin_step(work, step, of[k], row);
        fetch_keys(work, step, first + k);
        broken[k] = -keep_step(step, row, epsilon[k], positions, rows->block.counts + k);
        fetch_values(work, step, of[k], positions, rows->block.counts[k]);
    }
    broken |= without & has_keys(&rows->block);
    to_lanes(&rows->block, rows->rows, rows->row, -INFINITY, DISTANCES);
    solve(&rows->block, epsilon, (ivec){0});
    lanes_into_rows(rows->block.array[POWERS], rows->block.length, rows->rows, rows->row);
    for (int k = 0; k < count; k++) {
        float *row = rows->rows + k * rows->row;
        vec sum = {0};
        int32_t *positions = rows->places + k * rows->row;
        long number = keep_places(row, positions, rows->block.counts[k], 0.0f, 0.0f, row, positions, &sum);
        put_step(work, step, of[k], row, positions, number, broken[k]);
    }
}
