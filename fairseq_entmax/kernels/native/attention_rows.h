/* Attention in float32 whose cost beside one product of queries and keys is that of the support.
 *
 * Scores of LANES queries of a head are rows. Each keeps the keys that can have a probability, which are solved in lanes
 * (block.h). From there on everything is lists: the keys of the support of each query and their probabilities. The
 * backward pass needs these alone. Blocks of queries are shared among threads, and for the gradients of keys and values
 * ranges of keys, each key's queries in their order: no sum depends on the number of threads.
 */

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
