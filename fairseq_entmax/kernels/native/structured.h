/* Mappings with structure on a block: their kinds, and the gradients of groups of keys.
 *
 * The keys of a group have the same probability above 0. With TV they are a run of neighbours, with OSCAR they may be
 * anywhere. The gradient of a key's score is the mean, over its group, of the gradients of alpha-entmax alone.
 */

/* The numbers are those of rows.py */
enum { NO_STRUCTURE, TV, OSCAR, PNORM };

/* Widens the bound below which keys are dropped, because it has been rounded */
#define SLACK 1.000001f
#define LEAST_GAMMA 1e-30f

typedef struct {
    int kind;
    vec epsilon, strength;
    ivec without; /* rows with a NaN parameter: solved with another, then set to NaN */
} Structure;

static inline Structure make_structure(int kind, vec epsilon, vec strength)
{
    ivec without = (epsilon != epsilon) | (strength != strength);
    vec least = all(kind == PNORM ? LEAST_GAMMA : 0.0f);
    epsilon = WHERE(without, all(1.0f), WHERE(epsilon < LEAST_EPSILON, all(LEAST_EPSILON), epsilon));
    strength = WHERE(without, all(1.0f), WHERE(strength > least, strength, least));
    return (Structure){kind, epsilon, strength, without};
}

/* An epsilon for which -1 / epsilon is below the distance of every one of n keys that can be in the support */
static inline vec epsilon_to_keep(const Structure *structure, long n)
{
    if (!structure->kind) return structure->epsilon;
    if (structure->kind == PNORM) return 1.0f / (SLACK * structure->strength);
    return 1.0f / (SLACK * (1.0f / structure->epsilon + structure->strength * (float)(n - 1)));
}

/* Makes the distances relative to each lane's largest again, and counts the keys that can be in the support */
static inline void recentre(Block *block, vec epsilon)
{
    vec *restrict distances = block->array[DISTANCES], least = -1.0f / epsilon;
    ivec counts = {0};
    subtract_tops(distances, block->length, (ivec){0} - 1);
    for (long i = 0; i < block->length; i++) counts -= distances[i] > least;
    memcpy(block->counts, &counts, sizeof counts);
}

/* Turns distances in lanes into probabilities */
static inline void map_block(Block *block, const Structure *structure)
{
    if (structure->kind == TV) prox_tv(block, structure->strength);
    if (structure->kind == OSCAR) prox_oscar(block, structure->epsilon, structure->strength);
    if (structure->kind == PNORM) {
        solve_pnorm(block, structure->epsilon, structure->strength);
        return;
    }
    if (structure->kind) recentre(block, structure->epsilon);
    solve(block, structure->epsilon, structure->kind ? structure->strength > 0.0f : (ivec){0});
}

/* --- gradients of groups --------------------------------------------------------------------- */

/* Replaces the gradients in SENSITIVITIES by their means over the runs of each lane */
static void mean_of_runs(const Block *block)
{
    const vec *restrict p = block->array[PROBS];
    vec *restrict grad = block->array[SENSITIVITIES], *restrict totals = block->array[LOGS],
        *restrict counts = block->array[WEIGHTS], total = {0}, count = {0}, mean = {0};
    ivec ends = all(0.0f) == 0.0f;
    for (long i = 0; i < block->length; i++) {
        ivec starts = p[i] == 0.0f;
        if (i == 0) starts |= -1;
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

/* The gradient of TV's strength from the means over runs; `seen` says which keys are not masked */
static vec strength_of_runs(const Block *block, const ivec *seen)
{
    const vec *restrict p = block->array[PROBS], *restrict mean = block->array[SENSITIVITIES];
    vec sum = {0};
    for (long i = 0; i < block->length; i++) sum += mean[i] * 0.0f; /* NaN stays */
    for (long i = 1; i < block->length; i++) {
        vec change = mean[i] - mean[i - 1];
        change = WHERE(p[i - 1] > p[i], change, ZERO_UNLESS(p[i - 1] < p[i], -change));
        sum += ZERO_UNLESS(seen[i - 1] & seen[i], change);
    }
    return sum;
}

/* With OSCAR: replaces a lane's gradients by means over groups, unless `is_single`; returns that of the strength */
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
        sum += 0.5 * (first + end - kept) * total; /* centred ranks, as the gradients sum to 0 */
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

/* The gradients of a block: those of the scores replace the sensitivities, the others are returned. `seen` is as above,
 * or null if TV's strength gets no gradient. */
static OfParameters differentiate_structure(const Block *block, const Structure *structure, const ivec *seen,
                                            int for_epsilon)
{
    OfParameters result = {{0}, {0}};
    if (structure->kind == PNORM) return differentiate_pnorm(block, structure->epsilon, structure->strength);
    result.for_epsilon = differentiate(block, structure->epsilon, for_epsilon);
    if (!structure->kind) return result;
    if (structure->kind == OSCAR) {
        result.for_strength = mean_of_all_clusters(block, structure->strength);
        return result;
    }
    /* At strength 0 equal keys move together if the strength grows, alone if a score does */
    vec *restrict grad = block->array[SENSITIVITIES], *restrict own = block->array[GRADS];
    memcpy(own, grad, block->length * sizeof(vec));
    mean_of_runs(block);
    if (seen) result.for_strength = strength_of_runs(block, seen);
    for (long i = 0; i < block->length; i++) grad[i] = WHERE(structure->strength == 0.0f, own[i], grad[i]);
    return result;
}
