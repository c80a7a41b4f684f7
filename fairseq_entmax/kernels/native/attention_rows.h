/* Attention in float32. Apart from one product of queries and keys, its cost is proportional to the support.
 *
 * The scores of LANES queries of a head are rows. Each row keeps the keys that can be in the support, and is solved in
 * a lane (block.h). From there on all work is on lists: the keys in the support of each query and their probabilities.
 * Besides its inputs, the backward pass needs only these lists. Threads share blocks of queries and, for the gradients
 * of keys and values, ranges of keys, each key with its queries in order. So no sum depends on how many threads work.
 */

/* Applies dropout to the probabilities `probs` of the support of a block of queries, which gives `weights`. Multiplies
 * `grads`, unless null, by the same factors. Overwrites rows->places. */
static void drop_rows(const Rows *rows, const Shape *shape, Head head, long first, const int32_t *keys,
                      const float *probs, float *weights, float *grads)
{
    long number = 0;
    for (int k = 0; k < LANES; k++)
        for (long end = number + rows->numbers[k]; number < end; number++)
            rows->places[number] = keys[number] + (int32_t)(k * shape->keys);
    int64_t first_number = ((int64_t)head.place * shape->queries + first) * shape->keys;
    drop(&shape->dropout, first_number, rows->places, number, probs, weights, grads);
}

/* The weighted sum of the rows, from number c on, VECTORS vectors at a time as long as they fit */
#define MIX(VECTORS)                                                                                       \
    for (; c + VECTORS * LANES <= size; c += VECTORS * LANES) {                                            \
        vec sum[VECTORS] = {{0}};                                                                          \
        for (long i = 0; i < number; i++) {                                                                \
            const float *row = y.data + (offsets ? offsets[keys[i]] : keys[i] * y.row) + c;                \
            for (int t = 0; t < VECTORS; t++) sum[t] += weights[i] * vec_at(row + t * LANES);              \
        }                                                                                                  \
        for (int t = 0; t < VECTORS; t++) *(given_vec *)(out + c + t * LANES) = sum[t];                    \
    }

/* out = sum over i of weights[i] * row keys[i] of y, of `size` numbers; `offsets`, unless null, says where rows are */
static inline __attribute__((always_inline)) void mix_row(const float *weights, const int32_t *keys, long number,
                                                          Matrix y, const long *offsets, long size, float *restrict out)
{
    long c = 0;
    MIX(8) MIX(4) MIX(2) MIX(1)
    if (c < size && size > LANES) c = size - LANES; /* the last vector overlaps the one before */
    MIX(1)
    for (; c < size; c++) {
        float sum = 0;
        for (long i = 0; i < number; i++) sum += weights[i] * y.data[(offsets ? offsets[keys[i]] : keys[i] * y.row) + c];
        out[c] = sum;
    }
}

/* Numbers from c on of the outputs of a block of queries: `panels` whole vectors, or only `part` numbers if that is not
 * 0. Adds 0 to *broken, or NaN if an output is not finite. */
static inline __attribute__((always_inline)) void mix_panels(const int panels, const Rows *rows, int count,
                                                             Matrix values, long c, int part, Matrix out, vec *broken)
{
    for (int query = 0; query < count; query += TOGETHER) {
        const float *weights = rows->rows + query * rows->row;
        vec sums[PANELS][TOGETHER] = {{{0}}};
        for (long i = 0; i < rows->block.length; i++) {
            const float *value = row_of(values, rows->visible[i]) + c;
            vec numbers[PANELS];
            for (int p = 0; p < panels; p++)
                numbers[p] = part ? load_part(value, part, 0.0f) : *(const volatile given_vec *)(value + p * LANES);
            for (int k = 0; k < TOGETHER; k++)
                for (int p = 0; p < panels; p++) sums[p][k] += numbers[p] * weights[k * rows->row + i];
        }
        for (int k = 0; k < TOGETHER && query + k < count; k++)
            for (int p = 0; p < panels; p++) {
                store_part(sums[p][k], row_of(out, query + k) + c + p * LANES, part ? part : LANES);
                *broken += sums[p][k] * 0.0f;
            }
    }
}

/* The outputs of a block of queries from the probabilities of all visible keys. Returns 1 if they must be recomputed
 * from the lists: a sum over all keys includes 0 times the values that a list leaves out, NaN if one is not finite. */
static int mix_dense(const Rows *rows, int count, Matrix values, long size, Matrix out)
{
    vec broken = {0};
    long c = 0;
    for (; c + PANELS * LANES <= size; c += PANELS * LANES) mix_panels(PANELS, rows, count, values, c, 0, out, &broken);
    for (; c + 2 * LANES <= size; c += 2 * LANES) mix_panels(2, rows, count, values, c, 0, out, &broken);
    for (; c < size; c += LANES) mix_panels(1, rows, count, values, c, smaller(size - c, LANES), out, &broken);
    return any(broken != 0.0f);
}

/* The outputs of a block of queries. Returns the number of keys in their support, which are left in rows->keys, with
 * their probabilities in rows->probs. */
static long attend_rows(const Shape *shape, Head head, long first, const Attention *of, Rows *rows)
{
    int count = smaller(shape->queries - first, LANES), drops = shape->dropout.factor != 0;
    Matrix queries = matrix(&of->query, head, first), keys = matrix(&of->key, head, 0),
           values = matrix(&of->value, head, 0), out = matrix(&of->output, head, first);
    if (rows->packed_one != head.place) {
        list_visible(rows, shape, head.sentence);
        if (rows->is_short) {
            prefetch_next(shape, &of->query, head, shape->queries);
            prefetch_next(shape, &of->key, head, shape->keys);
            prefetch_next(shape, &of->value, head, shape->keys);
        } else {
            pack_keys(rows, shape->size, keys);
        }
    }
    rows->packed_one = head.place;
    if (rows->is_short)
        rows_into_lanes(queries.data, queries.row, count, shape->size, shape->scale, (vec *)rows->queries);
    else
        copy_rows(rows, queries, count, shape->size, shape->scale);
    long found = find_support(rows, shape, keys, first, count, epsilon_of(shape, head));
    const float *weights = drops ? rows->rows : rows->probs;
    if (drops) drop_rows(rows, shape, head, first, rows->keys, rows->probs, rows->rows, 0);
    if (!rows->is_dense || drops || mix_dense(rows, count, values, shape->size, out))
        for (long k = 0, start = 0; k < count; start += rows->numbers[k], k++)
            mix_row(weights + start, rows->keys + start, rows->numbers[k], values, 0, shape->size, row_of(out, k));
    return found;
}

/* --- backward ------------------------------------------------------------------------------ */

/* rows->rows[i] = the dot product of rows->queries[rows->keys[i]] and y[keys[i]], for `number` pairs. Rows have `size`
 * numbers; those of the queries are filled up with zeros to `width`. */
static inline void dot_pairs(const Rows *rows, Matrix y, const int32_t *keys, long number, long size)
{
    for (long first = 0; first < number; first += LANES) {
        vec sums[LANES];
        float rest[LANES] = {0};
        for (int t = 0; t < LANES; t++) {
            long pair = smaller(first + t, number - 1);
            const float *row = rows->queries + rows->keys[pair] * rows->width, *other = row_of(y, keys[pair]);
            vec sum = {0};
            long c = 0;
            for (; c + LANES <= size; c += LANES) sum += *(const vec *)(row + c) * vec_at(other + c);
            for (; c < size; c++) rest[t] += row[c] * other[c];
            sums[t] = sum;
        }
        turn(sums);
        vec total = vec_at(rest);
        for (int t = 0; t < LANES; t++) total += sums[t];
        *(given_vec *)(rows->rows + first) = total;
    }
}

/* Copies the lanes of an array, times `scale`, to lists of counts[k] numbers, one after another */
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

/* Writes the gradients of a block of queries and of their scores, the latter times the scale, and with dropout also the
 * weights, for gather_gradients. Returns the gradient of epsilon, or 0 if it is not requested. */
static double differentiate_rows(const Shape *shape, Head head, long first, const Gradients *g, const Support *support,
                                 Rows *rows)
{
    int count = smaller(shape->queries - first, LANES);
    Block *block = &rows->block;
    Matrix all_keys = matrix(&g->key, head, 0), for_query = matrix(&g->for_query, head, first);
    const int64_t *starts = starts_of(support, shape, head) + first;
    const int32_t *keys = support->keys + starts[0];
    const float *probs = support->probs + starts[0];
    float *for_scores = g->for_scores + starts[0];
    copy_rows(rows, matrix(&g->grad, head, first), count, shape->size, 1.0f);
    for (int k = 0; k < LANES; k++) {
        block->counts[k] = rows->numbers[k] = starts[k + 1] - starts[k];
        for (int64_t i = starts[k]; i < starts[k + 1]; i++) rows->keys[i - starts[0]] = k;
    }
    dot_pairs(rows, matrix(&g->value, head, 0), keys, starts[LANES] - starts[0], shape->size);
    if (g->weights) drop_rows(rows, shape, head, first, keys, probs, g->weights + starts[0], rows->rows);
    to_lanes(block, probs, 0, 0.0f, PROBS);
    to_lanes(block, rows->rows, 0, 0.0f, GRADS);
    vec for_epsilon = differentiate(block, epsilon_of(shape, head), g->for_alpha != 0);
    lanes_to_lists(block, SENSITIVITIES, shape->scale, for_scores);
    double sum = 0;
    for (long k = 0, start = 0; k < count; start += rows->numbers[k], k++) {
        mix_row(for_scores + start, keys + start, rows->numbers[k], all_keys, 0, shape->size, row_of(for_query, k));
        sum += for_epsilon[k];
    }
    return sum;
}

/* The first place of a key that is at least `low` in a query's list, from `first` to before `end`, whose keys ascend */
static inline int64_t find_key(const int32_t *keys, int64_t first, int64_t end, long low)
{
    while (low > 0 && first < end) {
        int64_t middle = first + (end - first) / 2;
        if (keys[middle] < low) first = middle + 1;
        else end = middle;
    }
    return first;
}

/* Loops over each place i in the support of a head whose key is from `low` to before `high`; `one` is its query */
#define EACH_PLACE(i)                                                                                             \
    for (long one = 0; one < shape->queries; one++)                                                               \
        for (int64_t i = find_key(keys, starts[one], starts[one + 1], low); i < starts[one + 1] && keys[i] < high; i++)

/* The gradients of the keys and values from `low` to before `high` of a head: each gathers the queries with this key in
 * their support, in order. Returns 1 if memory cannot be allocated. */
static int gather_gradients(const Shape *shape, Head head, long low, long high, const Gradients *g,
                            const Support *support)
{
    Matrix queries = matrix(&g->query, head, 0), grads = matrix(&g->grad, head, 0),
           for_key = matrix(&g->for_key, head, 0), for_value = matrix(&g->for_value, head, 0);
    const int64_t *starts = starts_of(support, shape, head);
    const int32_t *keys = support->keys;
    const float *weights = g->weights ? g->weights : support->probs;
    /* Key j is counted at j + 2. Summed, j + 1 has where its queries start; once they are written, where they end. */
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
            own_scores[to] = g->for_scores[i];
        }
        for (long j = low; j < high; j++) {
            int64_t start = places[j], own = places[j + 1] - start;
            mix_row(own_scores + start, of + start, own, queries, 0, shape->size, row_of(for_key, j));
            mix_row(own_weights + start, of + start, own, grads, 0, shape->size, row_of(for_value, j));
        }
    }
    free(counts);
    free(of);
    return !of;
}
