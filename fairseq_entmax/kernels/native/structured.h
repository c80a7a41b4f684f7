/* Mappings with structure on a block: which there are, and the gradients of groups of keys.
 *
 * A group has the same probability, above 0: of TV a run of neighbours, of OSCAR keys wherever they are. The
 * gradient of a key's score is the mean over its group of what it is for alpha-entmax alone.
 */

/* As in structured.py */
enum { NO_STRUCTURE, TV, OSCAR, PNORM };

/* Keys below the bound by so little are kept: it has been rounded */
#define SLACK 1.000001f
#define LEAST_GAMMA 1e-30f

typedef struct {
    int kind;
    vec epsilon, strength;
    ivec without; /* a parameter: solved for any, and then NaN */
} Structure;

static inline Structure make_structure(int kind, vec epsilon, vec strength)
{
    ivec without = (epsilon != epsilon) | (strength != strength);
    vec least = all(kind == PNORM ? LEAST_GAMMA : 0.0f);
    epsilon = WHERE(without, all(1.0f), WHERE(epsilon < LEAST_EPSILON, all(LEAST_EPSILON), epsilon));
    strength = WHERE(without, all(1.0f), WHERE(strength > least, strength, least));
    return (Structure){kind, epsilon, strength, without};
}

/* The epsilon of an entmax that drops no key of n which can have a probability */
static inline vec epsilon_to_keep(const Structure *structure, long n)
{
    if (structure->kind == PNORM) return 1.0f / (SLACK * structure->strength);
    return 1.0f / (SLACK * (1.0f / structure->epsilon + structure->strength * (float)(n - 1)));
}

/* Distances from the largest of each lane again, and how many can have a probability */
static inline void recentre(Block *block, vec epsilon)
{
    vec *restrict distances = block->array[DISTANCES], top = all(-INFINITY), least = -1.0f / epsilon;
    ivec counts = {0};
    for (long i = 0; i < block->length; i++) top = WHERE(distances[i] > top, distances[i], top);
    top = WHERE(top == -INFINITY, all(0.0f), top);
    for (long i = 0; i < block->length; i++) {
        distances[i] -= top;
        counts -= distances[i] > least;
    }
    memcpy(block->counts, &counts, sizeof counts);
}

/* --- gradients of groups --------------------------------------------------------------------- */

/* What follows each other in `listed`, if it is not null, are neighbours only if their numbers do */
static inline int are_apart(const int32_t *listed, long i) { return listed && listed[i] != listed[i - 1] + 1; }

/* Means over the runs of each lane, in place of the sensitivities; not in lanes without a strength */
static void mean_of_runs(const Block *block, vec strength, const int32_t *listed)
{
    const vec *restrict p = block->array[PROBS];
    vec *restrict grad = block->array[SENSITIVITIES], *restrict totals = block->array[LOGS],
        *restrict counts = block->array[WEIGHTS], total = {0}, count = {0}, mean = {0};
    ivec single = strength == 0.0f, ends = all(0.0f) == 0.0f;
    for (long i = 0; i < block->length; i++) {
        ivec starts = single | (p[i] == 0.0f);
        if (i == 0 || are_apart(listed, i)) starts |= -1;
        else starts |= p[i] != p[i - 1];
        totals[i] = total = grad[i] + ZERO_UNLESS(~starts, total);
        counts[i] = count = 1.0f + ZERO_UNLESS(~starts, count);
    }
    for (long i = block->length - 1; i >= 0; i--) {
        mean = WHERE(ends, totals[i] / counts[i], mean);
        grad[i] = mean;
        ends = counts[i] == 1.0f;
    }
}

/* The gradient of TV's strength from the means over runs; `seen` says from 1 on which keys there are, with 0
 * before the first and behind the last. Keys that are not listed have no probability. */
static vec strength_of_runs(const Block *block, const ivec *seen, const int32_t *listed)
{
    const vec *restrict p = block->array[PROBS], *restrict mean = block->array[SENSITIVITIES];
    vec sum = {0};
    for (long i = 0; i < block->length; i++) {
        const ivec *here = seen + 1 + (listed ? listed[i] : i);
        sum += mean[i] * 0.0f; /* NaN stays */
        int starts = i == 0 || are_apart(listed, i), ends = i + 1 == block->length || are_apart(listed, i + 1);
        if (starts) sum -= ZERO_UNLESS(here[-1] & (p[i] > 0.0f), mean[i]);
        if (ends) sum -= ZERO_UNLESS(here[1] & (p[i] > 0.0f), mean[i]);
        if (starts) continue;
        vec change = mean[i] - mean[i - 1];
        change = WHERE(p[i - 1] > p[i], change, ZERO_UNLESS(p[i - 1] < p[i], -change));
        sum += ZERO_UNLESS(here[-1] & *here, change);
    }
    return sum;
}

/* The same of OSCAR for a lane of sorted probabilities, of which the gradient of the strength is returned */
static double mean_of_clusters(const Block *block, int k, int is_single)
{
    const float(*sorted)[LANES] = (const float(*)[LANES])block->array[LOGS];
    Places places = (Places)block->array[WEIGHTS];
    Lanes grad = (Lanes)block->array[SENSITIVITIES];
    long kept = 0;
    double sum = 0;
    while (kept < block->length && sorted[kept][k] > 0.0f) kept++;
    for (long first = 0, end; first < kept; first = end) {
        double total = 0;
        for (end = first; end < kept && sorted[end][k] == sorted[first][k]; end++) total += grad[places[end][k]][k];
        sum += 0.5 * (first + end - kept) * total; /* ranks about their mean: the gradients sum to 0 */
        if (is_single || end == first + 1) continue;
        for (long rank = first; rank < end; rank++) grad[places[rank][k]][k] = total / (end - first);
    }
    return sum;
}

static vec mean_of_all_clusters(const Block *block, vec strength)
{
    vec sums, spoiled = {0};
    for (long i = 0; i < block->length; i++) spoiled += block->array[SENSITIVITIES][i] * 0.0f; /* NaN stays */
    memcpy(block->array[LOGS], block->array[PROBS], block->length * sizeof(vec));
    sort_lanes(block->array[LOGS], (ivec *)block->array[WEIGHTS], block->length);
    for (int k = 0; k < LANES; k++) sums[k] = mean_of_clusters(block, k, strength[k] == 0.0f);
    return sums + spoiled;
}

/* The gradients of a block's probabilities: of the scores in the place of the sensitivities. `seen` as
 * above: null where TV's strength gets no gradient. */
static OfParameters differentiate_structure(const Block *block, const Structure *structure, const ivec *seen,
                                            const int32_t *listed, int for_epsilon)
{
    OfParameters result = {{0}, {0}};
    if (structure->kind == PNORM) return differentiate_pnorm(block, structure->epsilon, structure->strength);
    result.for_epsilon = differentiate(block, structure->epsilon, for_epsilon);
    if (structure->kind == OSCAR) {
        result.for_strength = mean_of_all_clusters(block, structure->strength);
        return result;
    }
    if (!seen) {
        mean_of_runs(block, structure->strength, listed);
        return result;
    }
    /* A strength that is 0 and begins to grow moves what is equal together; the scores move alone */
    ivec single = structure->strength == 0.0f;
    vec *restrict grad = block->array[SENSITIVITIES], *restrict own = block->array[GRADS];
    if (any(single)) memcpy(own, grad, block->length * sizeof(vec));
    mean_of_runs(block, all(1.0f), listed);
    result.for_strength = strength_of_runs(block, seen, listed);
    if (any(single))
        for (long i = 0; i < block->length; i++) grad[i] = WHERE(single, own[i], grad[i]);
    return result;
}
