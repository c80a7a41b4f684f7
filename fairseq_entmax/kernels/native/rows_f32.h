/* Rows of float32 in memory, LANES at a time, into the lanes of a block and back.
 *
 * Where rows are sparse, each lane keeps only the keys that can have a probability, and where they
 * were: what is computed is then as long as the support, not as the row.
 */

/* The last square of a row overlaps the one before it */
static inline long next_square(long first, long n)
{
    long next = first + LANES;
    return next < n && next + LANES > n ? n - LANES : next;
}

/* Lane k gets row k, and lanes without a row get `nothing` */
static inline void transpose(const float *restrict rows, int count, long n, float nothing, vec *restrict lanes)
{
    Lanes cells = (Lanes)lanes;
    if (count == LANES && n >= LANES) {
        for (long first = 0; first < n; first = next_square(first, n)) {
            vec square[LANES];
            for (int k = 0; k < LANES; k++) square[k] = *(const given_vec *)(rows + k * n + first);
            turn(square);
            for (int k = 0; k < LANES; k++) lanes[first + k] = square[k];
        }
        return;
    }
    for (int k = 0; k < count; k++)
        for (long i = 0; i < n; i++) cells[i][k] = rows[k * n + i];
    for (int k = count; k < LANES; k++)
        for (long i = 0; i < n; i++) cells[i][k] = nothing;
}

/* Lane k gets what is above `least`, or NaN, of a row less `origin`, and where it was */
static inline void keep(const float *restrict row, long n, float origin, float least, Block *block, int array, int k)
{
    Lanes cells = (Lanes)block->array[array];
    Places places = (Places)block->places;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        float value = row[i] - origin;
        cells[count][k] = value;
        places[count][k] = i;
        count += !(value <= least);
    }
    block->counts[k] = count;
}

/* The same for what is not 0, where that is so little that most vectors have none */
static inline void keep_few(const float *restrict row, long n, Block *block, int array, int k)
{
    Lanes cells = (Lanes)block->array[array];
    Places places = (Places)block->places;
    int32_t count = 0;
    for (long first = 0; first < n; first += LANES) {
        long end = smaller(first + LANES, n);
        if (end == first + LANES && !any(*(const given_vec *)(row + first) != 0.0f)) continue;
        for (long i = first; i < end; i++) {
            cells[count][k] = row[i];
            places[count][k] = i;
            count += row[i] != 0.0f;
        }
    }
    block->counts[k] = count;
}

/* Lanes that are shorter than the longest, or have no row, get `nothing` */
static inline void pad(Block *block, int array, int count, float nothing)
{
    Lanes cells = (Lanes)block->array[array];
    for (int k = count; k < LANES; k++) block->counts[k] = 0;
    block->length = 0;
    for (int k = 0; k < count; k++)
        if (block->counts[k] > block->length) block->length = block->counts[k];
    for (int k = 0; k < LANES; k++)
        for (long i = block->counts[k]; i < block->length; i++) cells[i][k] = nothing;
}

/* NaN where one of the numbers is NaN or infinite, else 0 */
static inline float broken_in(const float *restrict numbers, long n)
{
    vec sums[4] = {{0}};
    long i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int t = 0; t < 4; t++) sums[t] += *(const given_vec *)(numbers + i + t * LANES) * 0.0f;
    float sum = 0;
    for (; i < n; i++) sum += numbers[i] * 0.0f;
    sums[0] += sums[1] + sums[2] + sums[3];
    return sum + (any(sums[0] != sums[0]) ? NAN : 0.0f);
}

/* The numbers of more rows at the places that were kept. Returns what is to be added to each row: NaN
 * where one that was not kept would have made it so, by 0 NaN. */
static inline vec follow(const Block *block, const float *restrict rows, int count, long n, vec *restrict lanes)
{
    vec broken = {0};
    if (block->is_whole) {
        transpose(rows, count, n, 0.0f, lanes);
        return broken;
    }
    float some = broken_in(rows, count * n);
    if (some != some)
        for (int k = 0; k < count; k++) broken[k] = broken_in(rows + k * n, n);
    Places places = (Places)block->places;
    memset(lanes, 0, block->length * sizeof *lanes);
    for (int k = 0; k < count; k++)
        for (int32_t i = 0; i < block->counts[k]; i++) ((Lanes)lanes)[i][k] = rows[k * n + places[i][k]];
    return broken;
}

static inline void put_back(const Block *block, const vec *restrict lanes, float *restrict rows, int count, long n)
{
    const float(*cells)[LANES] = (const float(*)[LANES])lanes;
    if (block->is_whole && count == LANES && n >= LANES) {
        for (long first = 0; first < n; first = next_square(first, n)) {
            vec square[LANES];
            for (int k = 0; k < LANES; k++) square[k] = lanes[first + k];
            turn(square);
            for (int k = 0; k < LANES; k++) *(given_vec *)(rows + k * n + first) = square[k];
        }
        return;
    }
    if (block->is_whole) {
        for (int k = 0; k < count; k++)
            for (long i = 0; i < n; i++) rows[k * n + i] = cells[i][k];
        return;
    }
    Places places = (Places)block->places;
    memset(rows, 0, count * n * sizeof *rows);
    for (int k = 0; k < count; k++)
        for (int32_t i = 0; i < block->counts[k]; i++) rows[k * n + places[i][k]] = cells[i][k];
}

/* The largest score; infinity where the row has it, or NaN */
static inline float top_of(const float *row, long n)
{
    float top = -INFINITY;
    int has_nan = 0;
#pragma omp simd reduction(max : top) reduction(| : has_nan)
    for (long i = 0; i < n; i++) {
        has_nan |= row[i] != row[i];
        top = row[i] > top ? row[i] : top;
    }
    return has_nan ? INFINITY : top;
}

/* The distances from the largest score of each row, where they can have a probability: no threshold
 * is below the largest score. Where the first row keeps most of its keys, all are left in place.
 * Returns which rows have NaN or infinity. */
static inline ivec keep_scores(const float *scores, int count, long n, vec epsilon, Block *block)
{
    vec least = -1.0f / epsilon, top = all(-INFINITY);
    float first_top = top_of(scores, n), first_least = first_top + least[0];
    long kept = 0;
    for (long i = 0; i < n; i++) kept += scores[i] > first_least;
    block->is_whole = 2 * kept > n;
    vec *restrict distances = block->array[DISTANCES];
    if (!block->is_whole) {
        for (int k = 0; k < count; k++) {
            top[k] = top_of(scores + k * n, n);
            float origin = top[k] == -INFINITY ? 0 : top[k];
            keep(scores + k * n, n, origin, least[k], block, DISTANCES, k);
        }
        pad(block, DISTANCES, count, -INFINITY);
        return top == INFINITY;
    }
    transpose(scores, count, n, -INFINITY, distances);
    ivec broken = {0}, counts = {0};
    for (long i = 0; i < n; i++) {
        top = WHERE(distances[i] > top, distances[i], top);
        broken |= distances[i] != distances[i];
    }
    vec origin = WHERE(top == -INFINITY, all(0.0f), top);
    for (long i = 0; i < n; i++) {
        distances[i] -= origin;
        counts -= distances[i] > least;
    }
    memcpy(block->counts, &counts, sizeof counts);
    block->length = n;
    return broken | (top == INFINITY);
}

/* Numbers of the rows from `first` on: row r has number (r / inner) mod count */
static inline vec load_numbers(const float *numbers, long first, long inner, long count)
{
    vec loaded;
    long entry = first / inner % count, rest = inner - first % inner;
    for (int k = 0; k < LANES; k++) {
        loaded[k] = numbers[entry];
        if (--rest) continue;
        rest = inner;
        if (++entry == count) entry = 0;
    }
    return loaded;
}

static inline vec load_epsilon(const float *epsilon, long first, long inner, long count)
{
    vec loaded = load_numbers(epsilon, first, inner, count);
    return WHERE(loaded < LEAST_EPSILON, all(LEAST_EPSILON), loaded);
}

/* NaN in whole rows */
static inline void fill_rows(ivec broken, float *rows, int count, long n)
{
    for (int k = 0; k < count; k++)
        if (broken[k])
            for (long i = 0; i < n; i++) rows[k * n + i] = NAN;
}

static inline void keep_support(const float *probs, int count, long n, Block *block)
{
    long kept = 0;
    for (long i = 0; i < n; i++) kept += probs[i] != 0.0f;
    block->is_whole = 2 * kept > n;
    if (block->is_whole) {
        transpose(probs, count, n, 0.0f, block->array[PROBS]);
        block->length = n;
        return;
    }
    int is_few = 2 * LANES * kept < n;
    for (int k = 0; k < count; k++)
        if (is_few) keep_few(probs + k * n, n, block, PROBS, k);
        else keep(probs + k * n, n, 0.0f, 0.0f, block, PROBS, k);
    pad(block, PROBS, count, 0.0f);
}

/* `count` rows of n scores to probabilities */
static void forward_block(const float *scores, vec epsilon, float *probs, int count, long n, Block *block)
{
    ivec without = epsilon != epsilon; /* solved for any epsilon, and then NaN */
    epsilon = WHERE(without, all(1.0f), epsilon);
    ivec broken = sift_scores(scores, count, n, epsilon, block);
    broken |= without & has_keys(block);
    solve(block, epsilon);
    put_where_kept(block, POWERS, DISTANCES, probs, count, n);
    fill_rows(broken, probs, count, n);
}

/* The gradients of `count` rows; grad_scores and grad_alpha may be null. */
static void backward_block(const float *probs, vec epsilon, const float *grads, float *grad_scores,
                           float *grad_alpha, int count, long n, Block *block)
{
    vec broken = sift_support(probs, grads, count, n, block);
    vec for_alpha = differentiate(block, epsilon, grad_alpha != 0) + broken;
    if (grad_scores) {
        put_where_kept(block, SENSITIVITIES, LOGS, grad_scores, count, n);
        fill_rows(broken != broken, grad_scores, count, n);
    }
    if (grad_alpha)
        for (int k = 0; k < count; k++) grad_alpha[k] = for_alpha[k];
}
