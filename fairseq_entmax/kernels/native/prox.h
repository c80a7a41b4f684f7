/* The proximal operators in front of alpha-entmax, on a block of distances with a row in each lane.
 *
 * Distances of keys that are masked are -infinity, and so they stay.
 */

/* A total over more keys, or a strength above so many times the spread of a row, loses digits in float32 */
#define MOST_NARROW_KEYS 2048
#define MOST_NARROW_STRENGTH 32.0f

/* Numbers in float64 for half of the lanes */
typedef double wide_vec __attribute__((vector_size(4 * LANES)));
typedef int64_t wide_ivec __attribute__((vector_size(4 * LANES)));
typedef float half_vec __attribute__((vector_size(2 * LANES), aligned(4)));

#define V vec
#define M ivec
#define REAL float
#define NAME(function) function
#define LESSER lesser
#define GREATER greater
#include "prox_tv.h"
#define V wide_vec
#define M wide_ivec
#define REAL double
#define NAME(function) function##_wide
#define LESSER(a, b) PICK((a) < (b), a, b)
#define GREATER(a, b) PICK((a) > (b), a, b)
#include "prox_tv.h"

/* Behind the arrays of the forward pass, numbers in float64 for half of the lanes, in four arrays */
enum { SCRATCH = FORWARD_ARRAYS, STRUCTURED_ARRAYS = FORWARD_ARRAYS + 4 };

/* --- total variation ------------------------------------------------------------------------ */

/* Of what is 0, where nothing changes and nothing is to be cut */
#define NEVER_CUT FLT_MAX

static inline void prox_tv_narrow(Block *block, vec strength)
{
    long n = block->length;
    vec *x = block->array[DISTANCES], *flux = block->array[POWERS], *enter = block->array[SCRATCH],
        *means = block->array[SCRATCH + 1], mean = {0};
    ivec as_it_was = strength == 0.0f;
    strength = WHERE(as_it_was, all(NEVER_CUT), strength);
    find_chains(x, enter, means, n);
    do flow(x, enter, means, flux, strength, n);
    while (any(cut(x, enter, means, flux, strength, n)));
    for (long i = 0; i < n; i++) {
        mean = WHERE(enter[i] == enter[i], means[i], mean);
        x[i] = WHERE(as_it_was, x[i], mean);
    }
}

static int any_wide(wide_ivec mask)
{
    int64_t found = 0;
    for (int k = 0; k < LANES / 2; k++) found |= mask[k];
    return found != 0;
}

static void prox_tv_wide(Block *block, vec strength)
{
    long n = block->length;
    wide_vec *x = (wide_vec *)block->array[SCRATCH], *flux = (wide_vec *)block->array[SCRATCH + 1],
             *enter = (wide_vec *)block->array[SCRATCH + 2], *means = (wide_vec *)block->array[SCRATCH + 3], bound, given;
    for (int first = 0; first < LANES; first += LANES / 2) {
        wide_vec mean = {0};
        for (int k = 0; k < LANES / 2; k++) {
            given[k] = strength[first + k];
            bound[k] = given[k] == 0.0 ? NEVER_CUT : given[k];
        }
        float *cells = (float *)block->array[DISTANCES] + first;
        for (long i = 0; i < n; i++) x[i] = __builtin_convertvector(*(half_vec *)(cells + i * LANES), wide_vec);
        find_chains_wide(x, enter, means, n);
        do flow_wide(x, enter, means, flux, bound, n);
        while (any_wide(cut_wide(x, enter, means, flux, bound, n)));
        for (long i = 0; i < n; i++) {
            wide_ivec starts = enter[i] == enter[i];
            mean = (wide_vec)((starts & (wide_ivec)means[i]) | (~starts & (wide_ivec)mean));
            wide_ivec as_it_was = given == 0.0;
            wide_vec z = (wide_vec)((as_it_was & (wide_ivec)x[i]) | (~as_it_was & (wide_ivec)mean));
            *(half_vec *)(cells + i * LANES) = __builtin_convertvector(z, half_vec);
        }
    }
}

/* Further below no key is in the support, and sums over a segment are to stay finite: the root of FLT_MAX */
#define LEAST_DISTANCE -1.8446743e19f

static void prox_tv(Block *block, vec strength)
{
    long n = block->length;
    vec least = {0}, *x = block->array[DISTANCES];
    for (long i = 0; i < n; i++) {
        ivec there = x[i] > -INFINITY;
        x[i] = WHERE(there & (x[i] < LEAST_DISTANCE), all(LEAST_DISTANCE), x[i]);
        least = WHERE(there & (x[i] < least), x[i], least);
    }
    /* Above the latter, nothing is cut */
    ivec loses = (strength > -MOST_NARROW_STRENGTH * least) & (strength < (float)-n * least);
    if (n > MOST_NARROW_KEYS || any(loses)) prox_tv_wide(block, strength);
    else prox_tv_narrow(block, strength);
}

/* --- OSCAR ---------------------------------------------------------------------------------- */

/* Sorts each lane, the largest first, and with it where its numbers were: Batcher's odd-even merges (Knuth,
 * The Art of Computer Programming 3, 5.2.2 M), which compare at the same places whatever the numbers */
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

/* Distances of a lane to the isotonic regression of distance + rank strength, by pooling adjacent violators. Each of
 * those above rises by its rank times the strength at the most, and the largest never falls: others are dropped. */
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
    for (int k = 0; k < LANES; k++) /* pools: 24 bytes for a key, of 8 LANES */
        pool_lane(block, k, -1.0 / epsilon[k], strength[k] < FLT_MAX ? strength[k] : FLT_MAX,
                  (Pool *)block->array[SCRATCH + 2]);
}
