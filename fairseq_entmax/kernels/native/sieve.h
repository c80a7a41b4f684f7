/* Rows of float32 in memory, LANES at a time, to what of them can have a probability, in the lanes of a block, and
 * back. Which numbers of a row were kept is a bit for each: what is computed between is as long as the support, not
 * as the row, and is put back without a look at where it was.
 */

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
    if (n >= LANES) *(given_vec *)numbers = part;
#ifdef HAS_COMPRESSION
    else _mm512_mask_storeu_ps(numbers, (1u << n) - 1, (__m512)part);
#else
    else for (long k = 0; k < n; k++) numbers[k] = part[k];
#endif
}

/* Writes the numbers that have a bit one after another; behind them anything, up to a whole vector */
static inline void squeeze(vec numbers, unsigned bits, float *to)
{
#ifdef HAS_COMPRESSION
    *(given_vec *)to = (vec)_mm512_maskz_compress_ps(bits, (__m512)numbers);
#elif defined(HAS_PERMUTATION)
    *(given_vec *)to = permuted(numbers, lanes_of[bits]);
#else
    for (; bits; bits &= bits - 1) *to++ = numbers[__builtin_ctz(bits)];
#endif
}

/* The numbers, of which there may be more, where there is a bit, and 0 elsewhere */
static inline vec spread_out(const float *numbers, unsigned bits)
{
#ifdef HAS_COMPRESSION
    return (vec)_mm512_maskz_expand_ps(bits, (__m512)vec_at(numbers));
#elif defined(HAS_PERMUTATION)
    ivec bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return ZERO_UNLESS((bit & (int32_t)bits) != 0, permuted(vec_at(numbers), ranks_of[bits]));
#else
    vec spread = {0};
    for (; bits; bits &= bits - 1) spread[__builtin_ctz(bits)] = *numbers++;
    return spread;
#endif
}

/* What is done for each half, quarter, ... of the lanes */
#if LANES == 16
#define EACH_HALF(DO) DO(8) DO(4) DO(2) DO(1)
#elif LANES == 8
#define EACH_HALF(DO) DO(4) DO(2) DO(1)
#else
#define EACH_HALF(DO) DO(2) DO(1)
#endif
#define TURN(half)                                                                             \
    for (int k = 0; k < LANES; k++) {                                                          \
        if (k & half) continue;                                                                \
        vec a = square[k], b = square[k + half];                                               \
        square[k] = SHUFFLE(a, b, UPPER, half);                                                \
        square[k + half] = SHUFFLE(a, b, LOWER, half);                                         \
    }
#define HALVES(half, JOIN)                                                                     \
    for (int k = 0; k < half; k++) {                                                           \
        vec a = SHUFFLE(square[k], square[k + half], UPPER, half);                             \
        square[k] = JOIN(a, SHUFFLE(square[k], square[k + half], LOWER, half));                \
    }
#define SUM(a, b) ((a) + (b))
#define ADD(half) HALVES(half, SUM)
#define MOST(half) HALVES(half, greater)

/* Rows and columns of a square of LANES numbers changed for each other */
static inline void turn(vec *square) { EACH_HALF(TURN) }

/* The sums of LANES vectors, one in each lane: a turn of which half is left after each step. They are written to. */
static inline vec sum_across(vec *square)
{
    EACH_HALF(ADD)
    return square[0];
}

/* The largest of LANES vectors, likewise */
static inline vec top_across(vec *square)
{
    EACH_HALF(MOST)
    return square[0];
}

/* How far apart rows are in an array of the block, in numbers: not at a power of two, for the cache */
static inline long stride_of(long n) { return (n + LANES - 1) / LANES * LANES + LANES; }

/* A bit for each number of each row, of vectors from the first on; words of a row are adjacent */
static inline uint16_t *bits_in(const Block *block) { return (uint16_t *)block->places; }
static inline long words_of(long n) { return (n + LANES - 1) / LANES; }

/* Number c of LANES rows into vector c, missing rows 0. Writes up to whole squares. */
static inline void rows_into_lanes(const float *rows, long stride, int count, long size, float scale, vec *lanes)
{
    vec square[LANES];
    for (long first = 0; first < size;) {
        int is_whole = count == LANES && first + LANES <= size;
        for (int k = 0; k < LANES && is_whole; k++) square[k] = vec_at(rows + k * stride + first) * scale;
        for (int k = 0; k < LANES && !is_whole; k++)
            square[k] = k < count ? load_part(rows + k * stride + first, size - first, 0.0f) * scale : all(0.0f);
        turn(square);
        for (int k = 0; k < LANES; k++) lanes[first + k] = square[k];
        first += LANES;
        if (is_whole && first < size) first = smaller(first, size - LANES); /* overlaps the one before */
    }
}

/* `number` vectors to rows of LANES and more numbers, up to whole vectors */
static inline void lanes_into_rows(const vec *lanes, long number, float *rows, long stride)
{
    for (long first = 0; first < number; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
        turn(square);
        for (int k = 0; k < LANES; k++) *(given_vec *)(rows + k * stride + first) = square[k];
    }
}

/* `size` vectors, number c of LANES rows each, to the first `count` of them. Reads up to whole squares. */
static inline void lanes_to_given(const vec *lanes, int count, long size, float *rows, long stride)
{
    for (long first = 0; first < size; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
        turn(square);
        for (int k = 0; k < count; k++) store_part(square[k], rows + k * stride + first, size - first);
    }
}

/* Rows that are as long as `counts` to lanes of an array: `stride` apart and with `nothing` behind up to a whole
 * vector, or lists one behind another if that is 0 */
static inline void to_lanes(Block *block, const float *rows, long stride, float nothing, int array)
{
    const float *row[LANES];
    block->length = 0;
    for (int k = 0; k < LANES; rows += stride ? stride : block->counts[k], k++) {
        row[k] = rows;
        if (block->counts[k] > block->length) block->length = block->counts[k];
    }
    for (long first = 0; first < block->length; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) {
            if (first >= block->counts[k]) square[k] = all(nothing);
            else if (stride) square[k] = vec_at(row[k] + first);
            else square[k] = load_part(row[k] + first, block->counts[k] - first, nothing);
        }
        turn(square);
        for (int k = 0; k < LANES; k++) block->array[array][first + k] = square[k];
    }
}

/* Scores of rows that are `there` to distances from the largest; of rows with NaN or infinity, which are returned, and
 * of missing ones to -infinity */
static inline ivec subtract_tops(vec *scores, long number, ivec there)
{
    ivec broken = {0};
    vec top = all(-INFINITY);
    for (long i = 0; i < number; i++) {
        broken |= scores[i] != scores[i];
        top = greater(scores[i], top);
    }
    broken |= top == INFINITY;
    there &= ~broken;
    top = WHERE(top == -INFINITY, all(0.0f), top);
    for (long i = 0; i < number; i++) scores[i] = WHERE(there, scores[i] - top, all(-INFINITY));
    return broken;
}

/* The largest number of each of PARTS * LANES parts of a row. Returns whether NaN is in it. */
#define PARTS 4
static inline int tops_of_parts(const float *restrict row, long n, vec *restrict tops)
{
    unsigned broken = 0;
    long first = 0;
    for (int part = 0; part < PARTS; part++) tops[part] = all(-INFINITY);
    for (; first + PARTS * LANES <= n; first += PARTS * LANES)
        for (int part = 0; part < PARTS; part++) {
            vec x = vec_at(row + first + part * LANES);
            broken |= bits_unlike(x, x);
            tops[part] = greater(x, tops[part]);
        }
    for (int part = 0; first < n; first += LANES, part++) {
        vec x = load_part(row + first, n - first, -INFINITY);
        broken |= bits_unlike(x, x);
        tops[part] = greater(x, tops[part]);
    }
    return broken != 0;
}

/* The largest of each part of a row; infinity where the row has that, or NaN */
static inline vec tops_of_row(const float *row, long n)
{
    vec top = all(-INFINITY);
    unsigned broken = 0;
    for (long i = 0; i < n; i += LANES) {
        vec x = load_part(row + i, n - i, -INFINITY);
        broken |= bits_unlike(x, x);
        top = greater(x, top);
    }
    return broken ? all(INFINITY) : top;
}

/* The distances of the scores from the largest of their row, of keys that can have a probability, in lanes.
 * Returns which rows have NaN or infinity; nothing is kept of them. */
static ivec sift_scores(const float *scores, int count, long n, vec epsilon, Block *block)
{
    long stride = stride_of(n), words = words_of(n);
    vec square[LANES], least = -1.0f / epsilon;
    for (int k = 0; k < LANES; k++) square[k] = k < count ? tops_of_row(scores + k * n, n) : all(-INFINITY);
    vec top = top_across(square);
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
    lanes_into_rows(block->array[array], block->length, (float *)block->array[scratch], stride);
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
