/* Moves the keys that can be in the support from LANES rows of float32 in memory to the lanes of a block, and back. A
 * bit for each number of a row says whether it was kept. So the work in between is as long as the support, not the row,
 * and the bits alone tell where results belong.
 */

static inline vec vec_at(const float *numbers) { return *(const given_vec *)numbers; }

/* The first of n numbers, filled up to a vector with `nothing` */
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

/* Writes the numbers whose bit is set one after another. May write up to a whole vector, garbage behind them. */
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

/* The inverse of squeeze: the next number where a bit is set, 0 elsewhere. May read a whole vector of numbers. */
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

/* DO(half), DO(quarter), ... of the number of lanes */
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

/* Transposes a square of LANES vectors */
static inline void turn(vec *square) { EACH_HALF(TURN) }

/* The sums of LANES vectors, one in each lane: a transpose whose every step halves the vectors. Overwrites them. */
static inline vec sum_across(vec *square)
{
    EACH_HALF(ADD)
    return square[0];
}

/* The largest numbers of LANES vectors, likewise */
static inline vec top_across(vec *square)
{
    EACH_HALF(MOST)
    return square[0];
}

/* The stride of rows in an array of the block, in numbers: rows a power of two apart would compete for cache lines */
static inline long stride_of(long n) { return (n + LANES - 1) / LANES * LANES + LANES; }

/* A bit for each number of each row, in one word per vector; the words of a row are adjacent */
static inline uint16_t *bits_in(const Block *block) { return (uint16_t *)block->places; }
static inline long words_of(long n) { return (n + LANES - 1) / LANES; }

/* lanes[c][k] = number c of row k, times `scale`; rows from `count` on are 0. Writes up to whole squares. */
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

/* Number i of row k = lanes[i][k], for LANES rows of `number` numbers. Reads and writes up to whole squares. */
static inline void lanes_into_rows(const vec *lanes, long number, float *rows, long stride)
{
    for (long first = 0; first < number; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
        turn(square);
        for (int k = 0; k < LANES; k++) *(given_vec *)(rows + k * stride + first) = square[k];
    }
}

/* The same for `count` rows of exactly `size` numbers. Reads up to whole squares. */
static inline void lanes_to_given(const vec *lanes, int count, long size, float *rows, long stride)
{
    for (long first = 0; first < size; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
        turn(square);
        for (int k = 0; k < count; k++) store_part(square[k], rows + k * stride + first, size - first);
    }
}

/* Rows of counts[k] numbers to the lanes of an array, with `nothing` behind the shorter ones. Rows are `stride` apart
 * and already filled up with `nothing` to a whole vector; or, if it is 0, each begins where the last one ends. */
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

/* Turns the scores of each lane into distances from its largest. Returns which lanes have NaN or +infinity: these, and
 * lanes that are not `there`, become -infinity. */
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

/* The largest number of each of PARTS * LANES parts of a row. Returns whether the row has NaN. */
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

/* The largest number of each of LANES parts of a row. One is +infinity if the row has that; all are if it has NaN. */
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

/* Moves the keys that can be in the support into lanes, as distances from the largest score of their row. scores:
 * `count` rows of n. Returns which rows have NaN or +infinity; nothing of them is kept. */
static ivec sift_scores(const float *scores, int count, long n, vec epsilon, Block *block)
{
    long stride = stride_of(n), words = words_of(n);
    vec square[LANES], least = -1.0f / epsilon;
    for (int k = 0; k < LANES; k++) square[k] = k < count ? tops_of_row(scores + k * n, n) : all(-INFINITY);
    vec top = top_across(square);
    ivec broken = top == INFINITY;
    float *rows = (float *)block->array[POWERS];
    /* In arrays: a lane whose index is only known at run time would go through memory anyway */
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

/* Puts the numbers in lanes of an array back where sift_scores or sift_support took them from, and 0 elsewhere */
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

/* Moves the probabilities that are not 0, and their gradients, into lanes. Returns what must be added to each row's
 * results: NaN if any gradient of the row is NaN or infinite, even at a probability of 0, which is left out; else 0. */
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
