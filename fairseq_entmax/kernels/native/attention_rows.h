/* Attention in float32 whose cost beside one product of queries and keys is that of the support.
 *
 * Scores of LANES queries of a head are rows. Each keeps the keys that can have a probability, which are solved in lanes
 * (block.h). From there on everything is lists: the keys of the support of each query and their probabilities. The
 * backward pass needs these alone. Blocks of queries are shared among threads, and for the gradients of keys and values
 * ranges of keys, each key's queries in their order: no sum depends on the number of threads.
 */

/* Keys side by side in a product, in vectors, and queries: as many sums as there are registers for */
#define PANELS 2
#define TOGETHER (LANES == 16 ? 8 : 4)

/* What a thread works on. Rows have `row` numbers, a multiple of LANES. */
typedef struct {
    Block block;
    float *packed;  /* panels of LANES keys: number c of each of them side by side */
    float *queries; /* (LANES, width), scaled, or (width, LANES) if rows are short; later gradients of outputs */
    float *rows;    /* (LANES, row): scores, then distances that are kept, then probabilities */
    int32_t *places;  /* (LANES, row): which of the packed keys they are of */
    int32_t *visible; /* (keys,): the keys that are packed */
    int32_t *keys;    /* (LANES * keys,): the support of the queries */
    float *probs;
    long row, width, number; /* number: of packed keys */
    long packed_one;         /* of which sentence and head; -1 at the start */
    int is_short;            /* the queries are in the lanes, and no keys are packed */
    int is_dense;            /* and so are the probabilities, of the keys that are visible */
} Rows;

static int make_rows(Rows *rows, const Shape *shape, int arrays)
{
    long keys = up_to_lanes(shape->keys), width = up_to_lanes(shape->size);
    *rows = (Rows){.row = keys + LANES, .width = width, .packed_one = -1, .is_short = shape->keys <= FEW_TO_PACK};
    rows->block = make_block(keys, arrays);
    long packed = rows->is_short ? LANES : (keys + LANES) * width;
    rows->packed = aligned_alloc(sizeof(vec), packed * sizeof(float));
    rows->queries = aligned_alloc(sizeof(vec), LANES * width * sizeof(float));
    rows->rows = aligned_alloc(sizeof(vec), LANES * rows->row * sizeof(float));
    rows->places = aligned_alloc(sizeof(vec), LANES * rows->row * sizeof(int32_t));
    rows->visible = malloc((shape->keys + 1) * sizeof(int32_t));
    rows->keys = malloc(LANES * rows->row * sizeof(int32_t));
    rows->probs = malloc(LANES * rows->row * sizeof(float));
    return !(rows->block.memory && rows->packed && rows->queries && rows->rows && rows->places && rows->visible &&
             rows->keys && rows->probs);
}

static void free_rows(Rows *rows)
{
    free(rows->block.memory);
    free(rows->packed);
    free(rows->queries);
    free(rows->rows);
    free(rows->places);
    free(rows->visible);
    free(rows->keys);
    free(rows->probs);
}

/* --- scores -------------------------------------------------------------------------------- */

/* The keys of a sentence that are not padding */
static void list_visible(Rows *rows, const Shape *shape, long sentence)
{
    const uint8_t *padding = shape->padding ? shape->padding + sentence * shape->keys : 0;
    rows->number = 0;
    for (long j = 0; j < shape->keys; j++)
        if (!padding || !padding[j]) rows->visible[rows->number++] = j;
}

/* These, of a head, as a product reads them */
static void pack_keys(Rows *rows, long size, const float *keys, long stride)
{
    long end = up_to_lanes(rows->number);
    for (long first = 0; first < end; first += LANES) {
        float *panel = rows->packed + first * size;
        const float *row[LANES];
        for (int k = 0; k < LANES; k++) row[k] = keys + rows->visible[smaller(first + k, rows->number - 1)] * stride;
        long c = 0;
        for (; c + LANES <= size; c += LANES) {
            vec square[LANES];
            for (int k = 0; k < LANES; k++) square[k] = vec_at(row[k] + c);
            turn(square);
            for (int k = 0; k < LANES; k++) *(vec *)(panel + (c + k) * LANES) = square[k];
        }
        for (; c < size; c++)
            for (int k = 0; k < LANES; k++) panel[c * LANES + k] = row[k][c];
    }
}

/* Rows of `size` numbers, missing ones and what is behind them 0 */
static void copy_rows(const float *from, long stride, int count, long size, float scale, float *to, long width)
{
    memset(to, 0, LANES * width * sizeof(float));
    for (int k = 0; k < count; k++)
        for (long c = 0; c < size; c++) to[k * width + c] = from[k * stride + c] * scale;
}

/* Scores of the queries with the first `number` packed keys */
static void multiply(const Rows *rows, int count, long size, long number)
{
    for (long first = 0; first < number; first += PANELS * LANES)
        for (int query = 0; query < count; query += TOGETHER) {
            const float *panel[PANELS], *q = rows->queries + query * rows->width;
            vec sums[PANELS][TOGETHER] = {{{0}}};
            for (int p = 0; p < PANELS; p++)
                panel[p] = rows->packed + smaller(first + p * LANES, number - 1) / LANES * LANES * size;
            for (long c = 0; c < size; c++)
                for (int i = 0; i < TOGETHER; i++) {
                    vec number_c = all(q[i * rows->width + c]);
                    for (int p = 0; p < PANELS; p++) sums[p][i] += *(const vec *)(panel[p] + c * LANES) * number_c;
                }
            for (int p = 0; p < PANELS && first + p * LANES < number; p++)
                for (int i = 0; i < TOGETHER; i++)
                    *(vec *)(rows->rows + (query + i) * rows->row + first + p * LANES) = sums[p][i];
        }
}

/* How many packed keys there are up to the last that a query from `first` on sees */
static long count_seen(const Rows *rows, const Shape *shape, long first, int count)
{
    long last = shape->keys - 1;
    if (shape->causal) last = smaller(last, first + count - 1 + shape->keys - shape->queries);
    if (shape->mask) {
        long seen = -1;
        for (int k = 0; k < count; k++) {
            const float *mask = shape->mask + (first + k) * shape->keys;
            long end = last;
            while (end > seen && mask[end] == -INFINITY) end--;
            seen = end > seen ? end : seen;
        }
        last = seen;
    }
    if (last < 0) return 0; /* there are more queries than keys, and the first see none */
    long number = smaller(rows->number, last + 1);
    while (number > 0 && rows->visible[number - 1] > last) number--;
    return number;
}

/* Adds the mask to a row of scores; what it leaves out is -infinity, also where the score is NaN */
static void mask_row(const Rows *rows, const Shape *shape, long query, long number, float *row)
{
    if (shape->mask) {
        const float *mask = shape->mask + query * shape->keys;
        for (long i = 0; i < number; i++) {
            float added = mask[rows->visible[i]];
            row[i] = added == -INFINITY ? -INFINITY : row[i] + added;
        }
    }
    if (shape->causal) {
        long last = query + shape->keys - shape->queries, end = number;
        while (end > 0 && rows->visible[end - 1] > last) row[--end] = -INFINITY;
    }
    for (long i = number; i < up_to_lanes(number); i++) row[i] = -INFINITY;
}

/* --- which keys can have a probability ------------------------------------------------------ */

/* Keeps of `number` values, less `origin`, those above `least`, and their places: given, or from 0 on. Writes up
 * to a vector behind them. What is read may be where it is written to. Returns how many; adds them to *sum. */
static inline long keep_places(const float *values, const int32_t *given, long number, float origin, float least,
                               float *kept, int32_t *places, vec *sum)
{
    long count = 0;
    ivec lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    for (long i = 0; i < number; i += LANES) {
        vec value = vec_at(values + i) - origin;
        ivec place;
        if (given) memcpy(&place, given + i, sizeof place);
        else place = lane + (int32_t)i;
        unsigned bits = bits_above(value, all(least));
        if (number - i < LANES) bits &= (1u << (number - i)) - 1;
        *sum += ZERO_UNLESS((value > least) & (lane < (int32_t)smaller(number - i, LANES)), value);
        squeeze(value, bits, kept + count);
        squeeze((vec)place, bits, (float *)(places + count));
        count += __builtin_popcount(bits);
    }
    return count;
}

/* Rows of scores to the distances of the keys that can have a probability: no threshold is below the largest
 * score, nor below the bound of those that are kept. Returns which rows have NaN or infinity. */
static ivec keep_rows(Rows *rows, int count, long number, vec epsilon)
{
    int32_t *counts = rows->block.counts;
    vec square[LANES], least = -1.0f / epsilon;
    float tops[LANES], lowest[LANES];
    long before = 0, left = 0;
    memset(counts, 0, sizeof rows->block.counts);
    for (int k = 0; k < LANES; k++)
        square[k] = k < count ? tops_of_row(rows->rows + k * rows->row, up_to_lanes(number)) : all(-INFINITY);
    vec top = top_across(square);
    ivec broken = top == INFINITY;
    memcpy(tops, &top, sizeof tops);
    for (int k = 0; k < LANES; k++) {
        float *row = rows->rows + k * rows->row;
        square[k] = all(0.0f);
        if (tops[k] == INFINITY || tops[k] == -INFINITY) continue;
        counts[k] = keep_places(row, 0, number, tops[k], least[0], row, rows->places + k * rows->row, square + k);
        left += counts[k];
    }
    for (int pass = 0; pass < MOST_PASSES && (pass == 0 || WORTH * (before - left) > before); pass++) {
        vec bound = bound_of(sum_across(square), __builtin_convertvector(counts_of(&rows->block), vec), epsilon);
        bound = greater(bound, least);
        memcpy(lowest, &bound, sizeof lowest);
        before = left, left = 0;
        for (int k = 0; k < LANES; k++) {
            float *row = rows->rows + k * rows->row;
            int32_t *places = rows->places + k * rows->row;
            square[k] = all(0.0f);
            counts[k] = keep_places(row, places, counts[k], 0.0f, lowest[k], row, places, square + k);
            left += counts[k];
        }
    }
    for (int k = 0; k < LANES; k++) *(given_vec *)(rows->rows + k * rows->row + counts[k]) = all(-INFINITY);
    return broken;
}

/* --- forward ------------------------------------------------------------------------------- */

/* The weights of a block of queries whose support has the probabilities `probs`, after dropout; `grads`, if not
 * null, are multiplied by what the probabilities are. Uses the places of `rows`. */
static void drop_rows(const Rows *rows, const Shape *shape, long sentence, long head, long first, int count,
                      const int32_t *numbers, const int32_t *keys, const float *probs, float *weights, float *grads)
{
    long number = 0;
    for (int k = 0; k < count; k++)
        for (long end = number + numbers[k]; number < end; number++)
            rows->places[number] = keys[number] + (int32_t)(k * shape->keys);
    int64_t first_number = (((int64_t)sentence * shape->heads + head) * shape->queries + first) * shape->keys;
    drop(&shape->dropout, first_number, rows->places, number, probs, weights, grads);
}

/* out = the weighted sum of VECTORS vectors of the rows from number c on */
#define MIX(VECTORS)                                                                                       \
    for (; c + VECTORS * LANES <= size; c += VECTORS * LANES) {                                            \
        vec sum[VECTORS] = {{0}};                                                                          \
        for (long i = 0; i < number; i++) {                                                                \
            const float *row = y + (offsets ? offsets[keys[i]] : keys[i] * stride) + c;                    \
            for (int t = 0; t < VECTORS; t++) sum[t] += weights[i] * vec_at(row + t * LANES);              \
        }                                                                                                  \
        for (int t = 0; t < VECTORS; t++) *(given_vec *)(out + c + t * LANES) = sum[t];                    \
    }

/* out = the sum of weights[i] times the row of `size` numbers of keys[i]: at its offset in y, or at so many strides */
static inline __attribute__((always_inline)) void mix_row(const float *weights, const int32_t *keys, long number,
                                                          const float *y, long stride, const long *offsets, long size,
                                                          float *restrict out)
{
    long c = 0;
    MIX(4)
    MIX(2)
    MIX(1)
    for (; c < size; c++) {
        float sum = 0;
        for (long i = 0; i < number; i++) sum += weights[i] * y[(offsets ? offsets[keys[i]] : keys[i] * stride) + c];
        out[c] = sum;
    }
}

/* Scores of short rows, in lanes, to the distances of the keys that can have a probability. Returns which rows have
 * NaN or infinity. */
static ivec keep_short(Rows *rows, const Shape *shape, const float *keys, long stride, long first, int count,
                       long number, vec epsilon)
{
    vec *scores = rows->block.array[DISTANCES];
    dot_listed((vec *)rows->queries, shape->size, keys, stride, rows->visible, number, scores);
    if (shape->mask) {
        lanes_into_rows(scores, number, rows->rows, rows->row);
        for (int k = 0; k < count; k++) mask_row(rows, shape, first + k, number, rows->rows + k * rows->row);
        rows_into_lanes(rows->rows, rows->row, count, up_to_lanes(number), 1.0f, scores);
    } else if (shape->causal) {
        ivec last;
        for (int k = 0; k < LANES; k++) last[k] = first + k + shape->keys - shape->queries;
        for (long i = 0; i < number; i++) scores[i] = WHERE(rows->visible[i] > last, all(-INFINITY), scores[i]);
    }
    ivec broken = keep_lanes(&rows->block, number, lanes_below(count), epsilon);
    long longest = 0;
    for (int k = 0; k < LANES; k++)
        if (rows->block.counts[k] > longest) longest = rows->block.counts[k];
    rows->block.length = number;
    rows->is_dense = FEWER * longest > number;
    if (rows->is_dense) return broken;
    lanes_into_rows(scores, number, rows->rows, rows->row);
    for (int k = 0; k < LANES; k++) {
        float *row = rows->rows + k * rows->row;
        vec sum;
        long left = keep_places(row, 0, number, 0.0f, -INFINITY, row, rows->places + k * rows->row, &sum);
        *(given_vec *)(row + left) = all(-INFINITY);
    }
    return broken;
}

/* The support of the queries of a block, from `first` on, of keys in rows `stride` apart. Returns how many keys it
 * has, of all of them. */
static long find_support(Rows *rows, const Shape *shape, const float *keys, long stride, long first, int count,
                         vec epsilon, int32_t *numbers)
{
    ivec without = epsilon != epsilon, broken; /* solved for any epsilon, and then NaN */
    epsilon = WHERE(without, all(1.0f), epsilon);
    long number = count_seen(rows, shape, first, count), found = 0;
    if (rows->is_short) {
        broken = keep_short(rows, shape, keys, stride, first, count, number, epsilon);
    } else {
        multiply(rows, count, shape->size, number);
        for (int k = 0; k < count; k++) mask_row(rows, shape, first + k, number, rows->rows + k * rows->row);
        broken = keep_rows(rows, count, number, epsilon);
    }
    broken |= without & has_keys(&rows->block);
    if (!rows->is_dense) to_lanes(&rows->block, rows->rows, rows->row, -INFINITY, DISTANCES);
    solve(&rows->block, epsilon, (ivec){0});
    lanes_into_rows(rows->block.array[POWERS], rows->block.length, rows->rows, rows->row);
    for (long i = 0; rows->is_dense && any(broken) && i < number; i++)
        rows->block.array[POWERS][i] = WHERE(broken, all(NAN), rows->block.array[POWERS][i]);
    for (int k = 0; k < count; k++) {
        int32_t *support = rows->keys + found;
        vec sum = {0};
        if (broken[k]) {
            for (long j = 0; j < shape->keys; j++) support[j] = j, rows->probs[found + j] = NAN;
            numbers[k] = shape->keys;
        } else {
            const int32_t *places = rows->is_dense ? 0 : rows->places + k * rows->row;
            long left = rows->is_dense ? number : rows->block.counts[k];
            numbers[k] = keep_places(rows->rows + k * rows->row, places, left, 0.0f, 0.0f, rows->probs + found, support,
                                     &sum);
            for (long i = 0; rows->number < shape->keys && i < numbers[k]; i++)
                support[i] = rows->visible[support[i]];
        }
        found += numbers[k];
    }
    return found;
}

/* The outputs of a block of queries whose probabilities are in the lanes. Returns 1 where they are to be found by the
 * lists: a sum over all keys has 0 times what a list leaves out, which may be no number. */
static int mix_lanes(Rows *rows, int count, const float *values, long stride, long size, float *out, long out_stride)
{
    vec *lanes = (vec *)rows->queries, broken = {0};
    mix_listed(rows->block.array[POWERS], values, stride, rows->visible, rows->block.length, size, lanes);
    for (long c = 0; c < size; c++) broken += lanes[c] * 0.0f;
    if (any((broken != 0.0f) & has_keys(&rows->block))) return 1;
    lanes_to_given(lanes, count, size, out, out_stride);
    return 0;
}

/* The outputs of a block of queries. Returns how many keys their support has, which are in `rows` with their
 * probabilities. */
static long attend_rows(const Shape *shape, long sentence, long head, long first, Matrices *query, Matrices *key,
                        Matrices *value, Matrices *output, int32_t *numbers, Rows *rows)
{
    int count = smaller(shape->queries - first, LANES);
    vec epsilon = epsilon_of(shape, head);
    const float *values = matrix(value, sentence, head);
    float *out = matrix(output, sentence, head);
    if (rows->packed_one != sentence * shape->heads + head) {
        list_visible(rows, shape, sentence);
        if (!rows->is_short) pack_keys(rows, shape->size, matrix(key, sentence, head), key->row);
        if (rows->is_short) {
            prefetch_next(shape, query, sentence, head, shape->queries);
            prefetch_next(shape, key, sentence, head, shape->keys);
            prefetch_next(shape, value, sentence, head, shape->keys);
        }
    }
    rows->packed_one = sentence * shape->heads + head;
    const float *queries = matrix(query, sentence, head) + first * query->row;
    if (rows->is_short)
        rows_into_lanes(queries, query->row, count, shape->size, shape->scale, (vec *)rows->queries);
    else
        copy_rows(queries, query->row, count, shape->size, shape->scale, rows->queries, rows->width);
    long found = find_support(rows, shape, matrix(key, sentence, head), key->row, first, count, epsilon, numbers);
    const float *weights = shape->dropout.factor ? rows->rows : rows->probs;
    if (shape->dropout.factor)
        drop_rows(rows, shape, sentence, head, first, count, numbers, rows->keys, rows->probs, rows->rows, 0);
    if (!rows->is_dense || shape->dropout.factor ||
        mix_lanes(rows, count, values, value->row, shape->size, out + first * output->row, output->row))
        for (long k = 0, start = 0; k < count; start += numbers[k], k++)
            mix_row(weights + start, rows->keys + start, numbers[k], values, value->row, 0, shape->size,
                    out + (first + k) * output->row);
    return found;
}

/* The keys and probabilities of a support to a place in memory. Returns the place behind them. */
static int64_t store_support(const Rows *rows, long found, int32_t *keys, float *probs, int64_t place)
{
    memcpy(keys + place, rows->keys, found * sizeof(int32_t));
    memcpy(probs + place, rows->probs, found * sizeof(float));
    return place + found;
}

/* --- backward ------------------------------------------------------------------------------ */

/* out[i] = rows[of[i]] y[keys[i]], rows of `size` numbers, and of `width` with zeros behind them in `rows` alone */
static inline void dot_pairs(const float *rows, long width, const int32_t *of, const float *y, long stride,
                             const int32_t *keys, long number, long size, float *restrict out)
{
    for (long first = 0; first < number; first += LANES) {
        vec sums[LANES];
        float rest[LANES] = {0};
        for (int t = 0; t < LANES; t++) {
            long pair = smaller(first + t, number - 1);
            const float *row = rows + of[pair] * width, *other = y + keys[pair] * stride;
            vec sum = {0};
            long c = 0;
            for (; c + LANES <= size; c += LANES) sum += *(const vec *)(row + c) * vec_at(other + c);
            for (; c < size; c++) rest[t] += row[c] * other[c];
            sums[t] = sum;
        }
        turn(sums);
        vec total = vec_at(rest);
        for (int t = 0; t < LANES; t++) total += sums[t];
        *(given_vec *)(out + first) = total;
    }
}

/* Lanes of an array to lists of as many numbers as `counts`, one behind another, times `scale` */
static inline void lanes_to_lists(const Block *block, int array, float scale, float *list)
{
    float *of[LANES];
    for (int k = 0; k < LANES; list += block->counts[k], k++) of[k] = list;
    for (long first = 0; first < block->length; first += LANES) {
        vec square[LANES];
        for (int k = 0; k < LANES; k++) square[k] = block->array[array][first + k] * scale;
        turn(square);
        for (int k = 0; k < LANES; k++)
            if (first < block->counts[k]) store_part(square[k], of[k] + first, block->counts[k] - first);
    }
}

/* The gradients of a block of queries: those of their scores, times the scale, into for_scores, and their own;
 * and the gradient of epsilon, if it is wanted. The support starts at `keys` and `probs`; with dropout `weights` gets
 * what that leaves of the probabilities. */
static double differentiate_rows(const Shape *shape, long sentence, long head, long first, const Gradients *g,
                                 const int32_t *numbers, const int32_t *keys, const float *probs, float *for_scores,
                                 float *weights, Rows *rows)
{
    int count = smaller(shape->queries - first, LANES);
    vec epsilon = epsilon_of(shape, head);
    Block *block = &rows->block;
    const float *values = matrix(&g->value, sentence, head), *all_keys = matrix(&g->key, sentence, head);
    float *for_query = matrix(&g->for_query, sentence, head);
    copy_rows(matrix(&g->grad, sentence, head) + first * g->grad.row, g->grad.row, count, shape->size, 1.0f,
              rows->queries, rows->width);
    long number = 0;
    for (int k = 0; k < LANES; k++) {
        block->counts[k] = numbers[k];
        for (long end = number + numbers[k]; number < end; number++) rows->keys[number] = k;
    }
    dot_pairs(rows->queries, rows->width, rows->keys, values, g->value.row, keys, number, shape->size, rows->rows);
    if (weights) drop_rows(rows, shape, sentence, head, first, count, numbers, keys, probs, weights, rows->rows);
    to_lanes(block, probs, 0, 0.0f, PROBS);
    to_lanes(block, rows->rows, 0, 0.0f, GRADS);
    vec for_epsilon = differentiate(block, epsilon, g->for_alpha != 0);
    lanes_to_lists(block, SENSITIVITIES, shape->scale, for_scores);
    double sum = 0;
    for (long k = 0, start = 0; k < count; start += numbers[k], k++) {
        mix_row(for_scores + start, keys + start, numbers[k], all_keys, g->key.row, 0, shape->size,
                for_query + (first + k) * g->for_query.row);
        sum += for_epsilon[k];
    }
    return sum;
}

/* Where in a query's part of the list, whose keys rise, those from `low` on begin */
static inline int64_t find_key(const int32_t *keys, int64_t first, int64_t end, long low)
{
    while (low > 0 && first < end) {
        int64_t middle = first + (end - first) / 2;
        if (keys[middle] < low) first = middle + 1;
        else end = middle;
    }
    return first;
}

/* For each place in the support of a head that is of a key from `low` to before `high` */
#define EACH_PLACE(i)                                                                                             \
    for (long one = 0; one < shape->queries; one++)                                                               \
        for (int64_t i = find_key(keys, starts[one], starts[one + 1], low); i < starts[one + 1] && keys[i] < high; i++)

/* The gradients of the keys and values from `low` to before `high` of a head: of each, the queries that see it, in
 * their order, side by side. starts: where the support of each query begins, and where that of the last ends. Returns
 * 1 where there is no memory. */
static int gather_gradients(const Shape *shape, long sentence, long head, long low, long high, const Gradients *g,
                            const int64_t *starts, const int32_t *keys, const float *weights, const float *for_scores)
{
    const float *queries = matrix(&g->query, sentence, head), *grads = matrix(&g->grad, sentence, head);
    float *for_key = matrix(&g->for_key, sentence, head), *for_value = matrix(&g->for_value, sentence, head);
    /* A key's number is counted two places on: summed and then moved by what is written, it is where it ends */
    int64_t *counts = calloc(high - low + 2, sizeof(int64_t)), *places = counts - low;
    if (!counts) return 1;
    EACH_PLACE(i) places[keys[i] + 2]++;
    for (long j = low; j < high; j++) places[j + 2] += places[j + 1];
    int64_t number = places[high + 1];
    int32_t *of = malloc((number + 1) * (sizeof(int32_t) + 2 * sizeof(float)));
    float *own_weights = (float *)(of + number), *own_scores = own_weights + number;
    if (of) {
        EACH_PLACE(i)
        {
            int64_t to = places[keys[i] + 1]++;
            of[to] = one;
            own_weights[to] = weights[i];
            own_scores[to] = for_scores[i];
        }
        for (long j = low; j < high; j++) {
            int64_t start = places[j], own = places[j + 1] - start;
            mix_row(own_scores + start, of + start, own, queries, g->query.row, 0, shape->size,
                    for_key + j * g->for_key.row);
            mix_row(own_weights + start, of + start, own, grads, g->grad.row, 0, shape->size,
                    for_value + j * g->for_value.row);
        }
    }
    free(counts);
    free(of);
    return !of;
}
