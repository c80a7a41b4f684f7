/* Rows of float32 in memory, LANES at a time, to what of them can have a probability, in the lanes of a block, and
 * back. Which numbers of a row were kept is a bit for each: what is computed between is as long as the support, not
 * as the row, and is put back without a look at where it was.
 */

#if LANES == 16 && defined(__AVX512F__)
#define HAS_COMPRESSION
#endif

static inline vec vec_at(const float *numbers) { return *(const given_vec *)numbers; }

/* The first numbers of n, with `nothing` behind them */
static inline vec load_part(const float *numbers, long n, float nothing)
{
    if (n >= LANES) return vec_at(numbers);
#ifdef HAS_COMPRESSION
    return (vec)_mm512_mask_loadu_ps((__m512)all(nothing), (1u << n) - 1, numbers);
#else
    vec part = all(nothing);
    for (long k = 0; k < n; k++) part[k] = numbers[k];
    return part;
#endif
}

static inline void store_part(vec part, float *numbers, long n)
{
    if (n >= LANES) {
        *(given_vec *)numbers = part;
        return;
    }
#ifdef HAS_COMPRESSION
    _mm512_mask_storeu_ps(numbers, (1u << n) - 1, (__m512)part);
#else
    for (long k = 0; k < n; k++) numbers[k] = part[k];
#endif
}

/* Writes the numbers that have a bit one after another; behind them anything, up to a whole vector */
static inline void squeeze(vec numbers, unsigned bits, float *to)
{
#ifdef HAS_COMPRESSION
    *(given_vec *)to = (vec)_mm512_maskz_compress_ps(bits, (__m512)numbers);
#else
    for (; bits; bits &= bits - 1) *to++ = numbers[__builtin_ctz(bits)];
#endif
}

/* The numbers, of which there may be more, where there is a bit, and 0 elsewhere */
static inline vec spread_out(const float *numbers, unsigned bits)
{
#ifdef HAS_COMPRESSION
    return (vec)_mm512_maskz_expand_ps(bits, (__m512)vec_at(numbers));
#else
    vec spread = {0};
    for (; bits; bits &= bits - 1) spread[__builtin_ctz(bits)] = *numbers++;
    return spread;
#endif
}

#define TURN(half)                                                                             \
    for (int k = 0; k < LANES; k++) {                                                          \
        if (k & half) continue;                                                                \
        vec a = square[k], b = square[k + half];                                               \
        square[k] = SHUFFLE(a, b, UPPER, half);                                                \
        square[k + half] = SHUFFLE(a, b, LOWER, half);                                         \
    }

/* Rows and columns of a square of LANES numbers changed for each other */
static inline void turn(vec *square)
{
#if LANES == 16
    TURN(8)
#endif
#if LANES >= 8
    TURN(4)
#endif
    TURN(2)
    TURN(1)
}

#define FOLD(half, JOIN)                                                                       \
    for (int k = 0; k < half; k++) {                                                           \
        vec a = square[k], b = square[k + half];                                               \
        square[k] = JOIN(SHUFFLE(a, b, UPPER, half), SHUFFLE(a, b, LOWER, half));              \
    }
#if LANES == 16
#define FOLD_ALL(JOIN) FOLD(8, JOIN) FOLD(4, JOIN) FOLD(2, JOIN) FOLD(1, JOIN)
#elif LANES == 8
#define FOLD_ALL(JOIN) FOLD(4, JOIN) FOLD(2, JOIN) FOLD(1, JOIN)
#else
#define FOLD_ALL(JOIN) FOLD(2, JOIN) FOLD(1, JOIN)
#endif
#define SUM(a, b) ((a) + (b))

/* The sums of LANES vectors, one in each lane: a turn of which half is left after each step. They are written to. */
static inline vec sum_across(vec *square)
{
    FOLD_ALL(SUM)
    return square[0];
}

/* The same of the largest */
static inline vec top_across(vec *square)
{
    FOLD_ALL(greater)
    return square[0];
}

/* How far apart rows are in an array of the block, in numbers: not at a power of two, for the cache */
static inline long stride_of(long n) { return (n + LANES - 1) / LANES * LANES + LANES; }

/* A bit for each number of each row, of vectors from the first on; words of a row are adjacent */
static inline uint16_t *bits_in(const Block *block) { return (uint16_t *)block->places; }
static inline long words_of(long n) { return (n + LANES - 1) / LANES; }

/* Rows that are as long as `counts`, with `nothing` behind up to a whole vector, to lanes of an array */
static inline void to_lanes(Block *block, const float *rows, long stride, float nothing, int array)
{
    block->length = 0;
    for (int k = 0; k < LANES; k++)
        if (block->counts[k] > block->length) block->length = block->counts[k];
    for (long first = 0; first < block->length; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++)
            square[k] = first < block->counts[k] ? vec_at(rows + k * stride + first) : all(nothing);
        turn(square);
        for (int k = 0; k < LANES; k++) block->array[array][first + k] = square[k];
    }
}

static inline void to_rows(Block *block, int array, int to, long stride)
{
    float *rows = (float *)block->array[to];
    for (long first = 0; first < block->length; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = block->array[array][first + k];
        turn(square);
        for (int k = 0; k < LANES; k++) *(given_vec *)(rows + k * stride + first) = square[k];
    }
}

/* The largest score of each row; infinity where the row has that, or NaN; -infinity in lanes without a row */
static inline vec tops_of(const float *scores, int count, long n)
{
    vec square[LANES];
    for (int k = 0; k < LANES; k++) square[k] = all(-INFINITY);
    for (int k = 0; k < count; k++) {
        vec top = all(-INFINITY);
        unsigned broken = 0;
        for (long i = 0; i < n; i += LANES) {
            vec x = load_part(scores + k * n + i, n - i, -INFINITY);
            broken |= bits_unlike(x, x);
            top = greater(x, top);
        }
        square[k] = broken ? all(INFINITY) : top;
    }
    return top_across(square);
}

/* The distances of the scores from the largest of their row, of keys that can have a probability, in lanes.
 * Returns which rows have NaN or infinity; nothing is kept of them. */
static ivec sift_scores(const float *scores, int count, long n, vec epsilon, Block *block)
{
    long stride = stride_of(n), words = words_of(n);
    vec top = tops_of(scores, count, n), least = -1.0f / epsilon;
    ivec broken = top == INFINITY;
    float *rows = (float *)block->array[POWERS];
    /* As arrays: a lane whose number is found at run time goes through memory */
    float origin[LANES], lowest[LANES];
    top = WHERE(top == -INFINITY, all(0.0f), top);
    least = WHERE(broken, top, least);
    memcpy(origin, &top, sizeof top);
    memcpy(lowest, &least, sizeof least);
    memset(block->counts, 0, sizeof block->counts);
    for (int k = 0; k < count; k++) {
        vec from = all(origin[k]), above = all(lowest[k]);
        float *to = rows + k * stride;
        uint16_t *all_bits = bits_in(block) + k * words;
        for (long i = 0; i < n; i += LANES) {
            vec distance = load_part(scores + k * n + i, n - i, -INFINITY) - from;
            unsigned bits = bits_above(distance, above);
            *all_bits++ = bits;
            squeeze(distance, bits, to);
            to += __builtin_popcount(bits);
        }
        *(given_vec *)to = all(-INFINITY);
        block->counts[k] = to - (rows + k * stride);
    }
    to_lanes(block, (const float *)block->array[POWERS], stride, -INFINITY, DISTANCES);
    return broken;
}

/* The numbers in lanes of an array back to where sift_scores or sift_support had them from, 0 elsewhere */
static void put_where_kept(Block *block, int array, int scratch, float *rows, int count, long n)
{
    long stride = stride_of(n), words = words_of(n);
    to_rows(block, array, scratch, stride);
    for (int k = 0; k < count; k++) {
        const float *from = (const float *)block->array[scratch] + k * stride;
        const uint16_t *bits = bits_in(block) + k * words;
        for (long i = 0; i < n; i += LANES, bits++) {
            store_part(spread_out(from, *bits), rows + k * n + i, n - i);
            from += __builtin_popcount(*bits);
        }
    }
}

/* The probabilities that are not 0 and their gradients. Returns what is to be added to each row: NaN where a
 * gradient is NaN or infinite, which has been left out where the probability is 0. */
static vec sift_support(const float *probs, const float *grads, int count, long n, Block *block)
{
    long stride = stride_of(n), words = words_of(n);
    float *rows[2] = {(float *)block->array[LOGS], (float *)block->array[WEIGHTS]};
    vec spoiled = {0};
    for (int k = 0; k < LANES; k++) block->counts[k] = 0;
    for (int k = 0; k < count; k++) {
        float *to = rows[0] + k * stride, *grads_to = rows[1] + k * stride;
        uint16_t *all_bits = bits_in(block) + k * words;
        unsigned broken = 0;
        for (long i = 0; i < n; i += LANES) {
            vec p = load_part(probs + k * n + i, n - i, 0.0f), grad = load_part(grads + k * n + i, n - i, 0.0f);
            unsigned bits = bits_unlike(p, all(0.0f));
            broken |= bits_unlike(grad * 0.0f, all(0.0f));
            *all_bits++ = bits;
            squeeze(p, bits, to);
            squeeze(grad, bits, grads_to);
            to += __builtin_popcount(bits);
            grads_to += __builtin_popcount(bits);
        }
        *(given_vec *)to = *(given_vec *)grads_to = all(0.0f);
        block->counts[k] = to - (rows[0] + k * stride);
        if (broken) spoiled[k] = NAN;
    }
    to_lanes(block, (const float *)block->array[LOGS], stride, 0.0f, PROBS);
    to_lanes(block, (const float *)block->array[WEIGHTS], stride, 0.0f, GRADS);
    return spoiled;
}
