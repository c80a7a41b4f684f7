/* Queries with few keys, for attention_support.h. The queries are in the lanes and the keys are read in place, since
 * packing keys pays only if many blocks of queries share it. The scores stay in the lanes until they are probabilities,
 * unless few keys can be in the support.
 */

/* Up to so many keys are not packed */
#define FEW_TO_PACK 160
/* The rows of a block become lists if none keeps more than one key in so many */
#define FEWER 2
/* The most passes that drop keys before Newton's method; after two, another needs the last to drop one key in WORTH */
#define MOST_PASSES 4
#define WORTH 8

/* A bound that no distance in the support is below, from the sum of any m distances: the threshold is at least the one
 * at which the mean of their u is m^-epsilon (power means). It is lowered a little for rounding: the error of a sum of
 * many equal numbers grows with their number in a lane, and in short rows one lane has all. */
static inline vec bound_of(vec sum, vec m, vec epsilon)
{
    m = greater(m, all(1.0f));
    float in_a_lane = 2e-7f / LANES;
    vec mean = sum / m, rounding = mean * (m * in_a_lane + 2e-5f); /* distances are at most 0 */
    return mean + rounding - exp2_of(log2_of(m, m - 1.0f) * -epsilon) * 1.000002f / epsilon;
}

/* Turns `number` scores in each lane into distances from the largest, -infinity for keys that cannot be in the support,
 * and counts the others. These are above -1 / epsilon and above the bound of the keys kept before. there: which lanes
 * have a row. Returns which of these have NaN or +infinity. */
static ivec keep_lanes(Block *block, long number, ivec there, vec epsilon)
{
    vec *x = block->array[DISTANCES], least = -1.0f / epsilon, bound = least, sum;
    ivec broken = subtract_tops(x, number, there) & there, counts;
    float before = 0, left = 0;
    for (int pass = 0; pass < MOST_PASSES && (pass < 2 || WORTH * (before - left) > before); pass++) {
        if (pass > 0) bound = greater(bound_of(sum, __builtin_convertvector(counts, vec), epsilon), least);
        counts = (ivec){0}, sum = all(0.0f);
        for (long i = 0; i < number; i++) {
            ivec can = x[i] > bound;
            counts -= can;
            sum += ZERO_UNLESS(can, x[i]);
            x[i] = WHERE(can, x[i], all(-INFINITY));
        }
        before = left, left = across(__builtin_convertvector(counts, vec));
    }
    memcpy(block->counts, &counts, sizeof counts);
    return broken;
}

/* Prefetches rows of the next head, if there is one: they are far apart in memory */
static inline void prefetch_next(const Shape *shape, const Matrices *m, Head head, long rows)
{
    if (head.place + 1 == shape->sentences * shape->heads) return;
    Matrix next = matrix(m, head_at(shape, head.place + 1), 0);
    for (long i = 0; i < smaller(rows, FEW_TO_PACK); i++)
        for (long c = 0; c < shape->size; c += 16) __builtin_prefetch(row_of(next, i) + c);
}
