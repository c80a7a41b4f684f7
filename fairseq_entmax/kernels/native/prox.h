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
#include "prox_tv.h"
#undef V
#undef M
#undef REAL
#undef NAME
#define V wide_vec
#define M wide_ivec
#define REAL double
#define NAME(function) function##_wide
#include "prox_tv.h"
#undef V
#undef M
#undef REAL
#undef NAME

/* Behind the arrays of the forward pass, numbers in float64 for half of the lanes, in four arrays */
enum { SCRATCH = FORWARD_ARRAYS, STRUCTURED_ARRAYS = FORWARD_ARRAYS + 4 };

/* --- total variation ------------------------------------------------------------------------ */

static inline void prox_tv_narrow(Block *block, vec strength, const int32_t *listed)
{
    long n = block->length;
    vec *x = block->array[DISTANCES], *flux = block->array[POWERS], *enter = block->array[SCRATCH],
        *means = block->array[SCRATCH + 1], mean = {0};
    ivec as_it_was = strength == 0.0f;
    find_chains(x, enter, means, listed, n);
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

static void prox_tv_wide(Block *block, vec strength, const int32_t *listed)
{
    long n = block->length;
    wide_vec *x = (wide_vec *)block->array[SCRATCH], *flux = (wide_vec *)block->array[SCRATCH + 1],
             *enter = (wide_vec *)block->array[SCRATCH + 2], *means = (wide_vec *)block->array[SCRATCH + 3], bound;
    for (int first = 0; first < LANES; first += LANES / 2) {
        wide_vec mean = {0};
        for (int k = 0; k < LANES / 2; k++) bound[k] = strength[first + k];
        float *cells = (float *)block->array[DISTANCES] + first;
        for (long i = 0; i < n; i++) x[i] = __builtin_convertvector(*(half_vec *)(cells + i * LANES), wide_vec);
        find_chains_wide(x, enter, means, listed, n);
        do flow_wide(x, enter, means, flux, bound, n);
        while (any_wide(cut_wide(x, enter, means, flux, bound, n)));
        for (long i = 0; i < n; i++) {
            wide_ivec starts = enter[i] == enter[i];
            mean = (wide_vec)((starts & (wide_ivec)means[i]) | (~starts & (wide_ivec)mean));
            wide_ivec as_it_was = bound == 0.0;
            wide_vec z = (wide_vec)((as_it_was & (wide_ivec)x[i]) | (~as_it_was & (wide_ivec)mean));
            *(half_vec *)(cells + i * LANES) = __builtin_convertvector(z, half_vec);
        }
    }
}

/* Keys that follow each other in `listed`, if it is not null, are neighbours only if their numbers do */
static void prox_tv(Block *block, vec strength, const int32_t *listed)
{
    long n = block->length;
    vec least = {0}, *x = block->array[DISTANCES];
    for (long i = 0; i < n; i++) least = WHERE((x[i] < least) & (x[i] > -INFINITY), x[i], least);
    /* Above the latter, nothing is cut */
    ivec loses = (strength > -MOST_NARROW_STRENGTH * least) & (strength < (float)-n * least);
    if (n > MOST_NARROW_KEYS || any(loses)) prox_tv_wide(block, strength, listed);
    else prox_tv_narrow(block, strength, listed);
}

/* --- OSCAR ---------------------------------------------------------------------------------- */

typedef struct {
    double sum, mean;
    int32_t first; /* rank */
} Pool;

/* Ascending, in place; `spare` is as long. Runs are sorted by insertion, and merged. */
static void sort_numbers(uint64_t *numbers, uint64_t *spare, long n)
{
    const long run = 16;
    for (long first = 0; first < n; first += run)
        for (long i = first + 1; i < smaller(first + run, n); i++) {
            uint64_t number = numbers[i];
            long j = i;
            for (; j > first && numbers[j - 1] > number; j--) numbers[j] = numbers[j - 1];
            numbers[j] = number;
        }
    for (long width = run; width < n; width *= 2) {
        for (long first = 0; first < n; first += 2 * width) {
            long left = first, middle = smaller(first + width, n), right = middle, end = smaller(first + 2 * width, n);
            for (long i = first; i < end; i++) {
                int is_left = left < middle && (right >= end || numbers[left] <= numbers[right]);
                spare[i] = numbers[is_left ? left : right];
                left += is_left;
                right += !is_left;
            }
        }
        memcpy(numbers, spare, n * sizeof *numbers);
    }
}

/* What ascends as a number of 0 or more does, with its place in the lower half */
static inline uint64_t with_place(float number, long place)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint64_t)bits << 32 | (uint64_t)place;
}

/* The places of the distances of a lane that can have a probability, from the largest on: each of those
 * above rises by its rank times the strength at the most, and the largest never falls. */
static long sort_candidates(const Block *block, int k, double least, double strength, uint64_t *numbers,
                            uint64_t *spare)
{
    const float(*cells)[LANES] = (const float(*)[LANES])block->array[DISTANCES];
    long kept = 0, before;
    double lowest = least - strength * (block->length - 1);
    for (long i = 0; i < block->length; i++) {
        numbers[kept] = with_place(0.0f - cells[i][k], i);
        kept += cells[i][k] > lowest;
    }
    do {
        before = kept;
        lowest = least - strength * (before - 1);
        kept = 0;
        for (long i = 0; i < before; i++) {
            numbers[kept] = numbers[i];
            kept += cells[(uint32_t)numbers[i]][k] > lowest;
        }
    } while (kept < before);
    sort_numbers(numbers, spare, kept);
    return kept;
}

/* Distances of a lane to the isotonic regression of distance + rank strength, by pooling adjacent violators */
static void pool_lane(const Block *block, int k, double least, double strength, uint64_t *numbers, Pool *pools)
{
    Lanes cells = (Lanes)block->array[DISTANCES];
    long kept = sort_candidates(block, k, least, strength, numbers, numbers + block->length), number = 0;
    for (long rank = 0; rank < kept; rank++) {
        double score = cells[(uint32_t)numbers[rank]][k] + strength * rank;
        Pool pool = {score, score, rank};
        while (number && pool.mean > pools[number - 1].mean) {
            pool.sum += pools[--number].sum;
            pool.first = pools[number].first;
            pool.mean = pool.sum / (rank + 1 - pool.first);
        }
        pools[number++] = pool;
    }
    for (long i = 0; i < block->length; i++) cells[i][k] = -INFINITY;
    for (long pool = 0; pool < number; pool++) {
        long end = pool + 1 < number ? pools[pool + 1].first : kept;
        for (long rank = pools[pool].first; rank < end; rank++)
            cells[(uint32_t)numbers[rank]][k] = pools[pool].mean - pools[0].mean;
    }
}

static void prox_oscar(Block *block, vec epsilon, vec strength)
{
    uint64_t *numbers = (uint64_t *)block->array[SCRATCH];
    Pool *pools = (Pool *)block->array[SCRATCH + 1]; /* 24 bytes a key, and 16 for the numbers */
    for (int k = 0; k < LANES; k++)
        pool_lane(block, k, -1.0 / epsilon[k], strength[k] < FLT_MAX ? strength[k] : FLT_MAX, numbers, pools);
}
