/* Maps rows of float32 in memory to probabilities, with or without structure, and computes their gradients, LANES rows
 * at a time. Only keys that can be in the support take part (sieve.h), except with TV, which needs all neighbours.
 */

/* Parameters: row r has epsilon[(r / inner) mod count], and strength likewise, which is null without structure */
typedef struct {
    const float *epsilon;
    long inner, count;
    const float *strength;
    long strength_inner, strength_count;
    int kind;
} OfRows;

/* Inputs and outputs of the backward pass; gradients that are not requested are null */
typedef struct {
    const float *probs;                             /* (rows, n), like masked, grad and for_scores */
    const uint8_t *masked;                          /* not 0 at masked keys; or null */
    const float *grad;                              /* with respect to the probabilities */
    float *for_scores, *for_epsilon, *for_strength; /* the last two are (rows,) */
} RowGradients;

/* numbers[(row / inner) mod count] of LANES rows from `first` on */
static inline vec load_numbers(const float *numbers, long first, long inner, long count)
{
    vec loaded;
    long entry = first / inner % count, rest = inner - first % inner;
    for (int k = 0; k < LANES; k++) {
        loaded[k] = numbers[entry];
        if (--rest) continue;
        rest = inner;
        if (++entry == count) entry = 0;
    }
    return loaded;
}

static inline Structure load_structure(const OfRows *of, long row)
{
    vec strength = {0};
    if (of->kind) strength = load_numbers(of->strength, row, of->strength_inner, of->strength_count);
    return make_structure(of->kind, load_numbers(of->epsilon, row, of->inner, of->count), strength);
}

/* Fills those of `count` rows of n that are broken with NaN */
static inline void fill_rows(ivec broken, float *rows, int count, long n)
{
    for (int k = 0; k < count; k++)
        if (broken[k])
            for (long i = 0; i < n; i++) rows[k * n + i] = NAN;
}

/* Maps `count` rows of n scores to probabilities */
static void forward_block(const float *scores, const Structure *structure, float *probs, int count, long n,
                          Block *block)
{
    int is_whole = structure->kind == TV;
    ivec broken;
    if (is_whole) {
        block->length = n;
        rows_into_lanes(scores, n, count, n, 1.0f, block->array[DISTANCES]);
        broken = subtract_tops(block->array[DISTANCES], n, lanes_below(count));
    } else {
        broken = sift_scores(scores, count, n, epsilon_to_keep(structure, n), block);
    }
    map_block(block, structure);
    broken |= structure->without & has_keys(block);
    if (is_whole) lanes_to_given(block->array[POWERS], count, n, probs, n);
    else put_where_kept(block, POWERS, DISTANCES, probs, count, n);
    fill_rows(broken, probs, count, n);
}

/* Sets lane k of seen[i] to -1 if key i of row k exists and is not masked, else to 0 */
static inline void load_seen(const uint8_t *masked, int count, long n, ivec *seen)
{
    Places cells = (Places)seen;
    memset(seen, 0, n * sizeof *seen);
    for (int k = 0; k < count; k++)
        for (long i = 0; i < n; i++) cells[i][k] = masked && masked[k * n + i] ? 0 : -1;
}

/* The gradients of `count` rows of n from `row` on. seen: n vectors of scratch, or null if TV's strength gets none. */
static void backward_block(const RowGradients *g, const Structure *structure, long row, int count, long n, ivec *seen,
                           Block *block)
{
    const float *probs = g->probs + row * n, *grads = g->grad + row * n;
    int is_whole = structure->kind == TV;
    vec broken = {0};
    if (is_whole) {
        block->length = n;
        rows_into_lanes(probs, n, count, n, 1.0f, block->array[PROBS]);
        rows_into_lanes(grads, n, count, n, 1.0f, block->array[GRADS]);
        if (seen) load_seen(g->masked ? g->masked + row * n : 0, count, n, seen);
    } else {
        broken = sift_support(probs, grads, count, n, block);
    }
    OfParameters of = differentiate_structure(block, structure, seen, g->for_epsilon != 0);
    if (g->for_scores) {
        if (is_whole) lanes_to_given(block->array[SENSITIVITIES], count, n, g->for_scores + row * n, n);
        else put_where_kept(block, SENSITIVITIES, LOGS, g->for_scores + row * n, count, n);
        fill_rows(broken != broken, g->for_scores + row * n, count, n);
    }
    of.for_epsilon += broken + ZERO_UNLESS(structure->without, all(NAN));
    of.for_strength += broken;
    for (int k = 0; g->for_epsilon && k < count; k++) g->for_epsilon[row + k] = of.for_epsilon[k];
    for (int k = 0; g->for_strength && k < count; k++) g->for_strength[row + k] = of.for_strength[k];
}
