/* Queries with few keys, for attention_support.h: they are in the lanes, so that keys are read where they are. Packing
 * them pays only where many blocks of queries share it. Scores become probabilities there too, unless few of them
 * can be.
 */

/* So few keys are not packed */
#define FEW_TO_PACK 160
/* Rows in which no query has one key in so many left are lists */
#define FEWER 2
/* Passes that drop keys before Newton's method, and the share of keys that makes another after two worth it */
#define MOST_PASSES 4
#define WORTH 8

/* No threshold is below that of any m keys at which the mean of their u is m^-epsilon (power means): what no
 * distance of a key with a probability is below, from the sums of m distances. A little lower, for rounding: that of
 * a sum of many equal numbers grows with how many there are in a lane, and in short rows a lane has all of them. */
static inline vec bound_of(vec sum, vec m, vec epsilon)
{
    m = greater(m, all(1.0f));
    float in_a_lane = 2e-7f / LANES;
    vec mean = sum / m, rounding = mean * (m * in_a_lane + 2e-5f); /* distances are not above 0 */
    return mean + rounding - exp2_of(log2_of(m, m - 1.0f) * -epsilon) * 1.000002f / epsilon;
}

/* `number` scores in each lane to distances of the keys that can have a probability, others -infinity, and how many
 * these are: no threshold is below the largest score, nor below the bound of those that are kept. there: which lanes
 * have a row. Returns which of these have NaN or infinity. */
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
        before = left, left = sum_of(__builtin_convertvector(counts, vec));
    }
    memcpy(block->counts, &counts, sizeof counts);
    return broken;
}

/* Asks for rows of the head behind a head, if there is one, which are far apart in memory */
static inline void prefetch_next(const Shape *shape, const Matrices *m, Head head, long rows)
{
    if (head.place + 1 == shape->sentences * shape->heads) return;
    Matrix next = matrix(m, head_at(shape, head.place + 1), 0);
    for (long i = 0; i < smaller(rows, FEW_TO_PACK); i++)
        for (long c = 0; c < shape->size; c += 16) __builtin_prefetch(row_of(next, i) + c);
}
