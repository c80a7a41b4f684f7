/* The proximal operators that come before alpha-entmax, on a block of distances with one row in each lane.
 *
 * The distance of a masked key is -infinity, and stays so.
 */

/* Arrays that follow those of the forward pass */
enum { SCRATCH = FORWARD_ARRAYS, STRUCTURED_ARRAYS = FORWARD_ARRAYS + 4 };

/* --- total variation ------------------------------------------------------------------------
 *
 * The z that minimises 1/2 |z - x|^2 + strength sum |z_i+1 - z_i|. All lanes take the same steps (docs/structured.md).
 * The flux over each boundary, which the strength bounds, tells which keys of a segment end above its mean and which do
 * not: a forward pass finds the flux, a backward pass the sides. Where two sides meet, the segment is cut, and the flux
 * stays at its bound. If all keys of a segment are on one side, its mean is their z.
 */

/* enter[i]: the flux into key i, 0 at ends of chains and NaN inside. means[i]: the mean of the chain from i on */
static inline void find_chains(const vec *restrict x, vec *restrict enter, vec *restrict means, long n)
{
    vec none = (vec){0}, total = none, count = none;
    ivec masked_next = (ivec)none - 1;
    enter[n] = none;
    for (long i = n - 1; i >= 0; i--) {
        ivec masked = x[i] == -INFINITY, ends = masked | masked_next;
        if (i + 1 < n) {
            enter[i + 1] = WHERE(ends, none, all(NAN));
            means[i + 1] = total / count;
        }
        total = x[i] + WHERE(ends, none, total);
        count = 1.0f + WHERE(ends, none, count);
        masked_next = masked;
    }
    enter[0] = none;
    means[0] = total / count;
}

/* The flux out of each key, clipped to the bounds at all earlier keys but not at the key itself */
static inline void flow(const vec *restrict x, const vec *restrict enter, const vec *restrict means,
                        vec *restrict flux, vec strength, long n)
{
    vec f = enter[0], mean = means[0];
    for (long i = 0; i < n; i++) {
        vec next = enter[i + 1], moved = f + (mean - x[i]);
        ivec ends = next == next;
        flux[i] = moved;
        /* Where a segment ends, both bounds are the flux there, which also replaces the NaN of a masked key */
        f = greater(moved, WHERE(ends, next, -strength));
        f = lesser(f, WHERE(ends, next, strength));
        mean = WHERE(ends, means[i + 1], mean);
    }
}

/* Cuts each segment where two sides meet. Returns the lanes in which there was a cut. */
static inline ivec cut(const vec *restrict x, vec *restrict enter, vec *restrict means, const vec *restrict flux,
                       vec strength, long n)
{
    vec none = (vec){0}, total = none, count = all(1.0f);
    ivec cuts = (ivec)none, is_high_next = cuts;
    for (long i = n - 1; i >= 0; i--) {
        vec next = enter[i + 1];
        ivec ends = next == next;
        ivec is_high = (flux[i] < WHERE(ends, next, -strength)) |
                       ((flux[i] < WHERE(ends, next, strength)) & is_high_next);
        ivec meets = ~ends & (is_high ^ is_high_next), starts_next = ends | meets;
        next = WHERE(meets, WHERE(is_high, -strength, strength), next);
        enter[i + 1] = next;
        means[i + 1] = (total - next) / count;
        total = x[i] + WHERE(starts_next, next, total);
        count = 1.0f + WHERE(starts_next, none, count);
        is_high_next = is_high;
        cuts |= meets;
    }
    means[0] = total / count;
    return cuts;
}

/* Replaces a strength of 0, which changes no score: with this one nothing is cut */
#define NEVER_CUT FLT_MAX

/* Minus the root of FLT_MAX. Keys further below are not in the support; they are raised to it, to keep sums finite. */
#define LEAST_DISTANCE -1.8446743e19f

static void prox_tv(Block *block, vec strength)
{
    long n = block->length;
    vec *x = block->array[DISTANCES], *flux = block->array[POWERS], *enter = block->array[SCRATCH],
        *means = block->array[SCRATCH + 1], mean = {0};
    ivec as_it_was = strength == 0.0f;
    strength = WHERE(as_it_was, all(NEVER_CUT), strength);
    for (long i = 0; i < n; i++)
        x[i] = WHERE((x[i] > -INFINITY) & (x[i] < LEAST_DISTANCE), all(LEAST_DISTANCE), x[i]);
    find_chains(x, enter, means, n);
    do flow(x, enter, means, flux, strength, n);
    while (any(cut(x, enter, means, flux, strength, n)));
    for (long i = 0; i < n; i++) {
        mean = WHERE(enter[i] == enter[i], means[i], mean);
        x[i] = WHERE(as_it_was, x[i], mean);
    }
}

/* --- OSCAR ---------------------------------------------------------------------------------- */

/* Sorts each lane in descending order, along with the places of its numbers, by Batcher's odd-even merges (Knuth,
 * The Art of Computer Programming 3, 5.2.2 M), whose comparisons do not depend on the numbers */
static void sort_lanes(vec *restrict numbers, ivec *restrict places, long n)
{
    long half = 1;
    while (2 * half < n) half *= 2;
    for (long i = 0; i < n; i++) places[i] = (int32_t)i - (ivec){0};
    for (long part = half; part > 0; part /= 2)
        for (long width = half, rest = 0, apart = part;; apart = width - part, width /= 2, rest = part) {
            for (long first = rest; first < n - apart; first += 2 * part)
                for (long i = first; i < smaller(first + part, n - apart); i++) {
                    vec a = numbers[i], b = numbers[i + apart];
                    ivec place_a = places[i], place_b = places[i + apart], swap = b > a;
                    numbers[i] = WHERE(swap, b, a);
                    numbers[i + apart] = WHERE(swap, a, b);
                    places[i] = (swap & place_b) | (~swap & place_a);
                    places[i + apart] = (swap & place_a) | (~swap & place_b);
                }
            if (width == part) break;
        }
}

typedef struct {
    double sum, mean;
    int32_t first; /* rank */
} Pool;

/* Replaces a lane's distances by the isotonic regression of distance + rank * strength, by pooling adjacent violators.
 * A key rises by at most rank * strength, and the largest never falls: keys that cannot exceed `least` are dropped. */
static void pool_lane(const Block *block, int k, double least, double strength, Pool *pools)
{
    Lanes cells = (Lanes)block->array[DISTANCES];
    const float(*sorted)[LANES] = (const float(*)[LANES])block->array[SCRATCH];
    Places places = (Places)block->array[SCRATCH + 1];
    long kept = block->length, number = 0;
    while (kept && !(sorted[kept - 1][k] > least - strength * (kept - 1))) kept--;
    for (long rank = 0; rank < kept; rank++) {
        double score = sorted[rank][k] + strength * rank;
        Pool pool = {score, score, rank};
        while (number && pool.mean > pools[number - 1].mean) {
            pool.sum += pools[--number].sum;
            pool.first = pools[number].first;
            pool.mean = pool.sum / (rank + 1 - pool.first);
        }
        pools[number++] = pool;
    }
    for (long pool = 0; pool < number; pool++) {
        long end = pool + 1 < number ? pools[pool + 1].first : kept;
        float z = pools[pool].mean - pools[0].mean;
        for (long rank = pools[pool].first; rank < end; rank++) cells[places[rank][k]][k] = z;
    }
    for (long rank = kept; rank < block->length; rank++) cells[places[rank][k]][k] = -INFINITY;
}

static void prox_oscar(Block *block, vec epsilon, vec strength)
{
    memcpy(block->array[SCRATCH], block->array[DISTANCES], block->length * sizeof(vec));
    sort_lanes(block->array[SCRATCH], (ivec *)block->array[SCRATCH + 1], block->length);
    for (int k = 0; k < LANES; k++) /* pools take 24 bytes a key; two arrays have 8 LANES */
        pool_lane(block, k, -1.0 / epsilon[k], strength[k] < FLT_MAX ? strength[k] : FLT_MAX,
                  (Pool *)block->array[SCRATCH + 2]);
}
