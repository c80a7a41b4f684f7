/* The backward pass of attention_rows.h for heads in which many keys have a probability: with the queries in the lanes.
 * A head is the work of one thread, and which these are is told by them alone: no sum depends on the number of threads.
 */

/* The share of queries and keys with a probability from which on a head is dense: one in so many */
#define DENSE 4
/* More queries are better shared among threads, and more keys leave the caches */
#define MOST_DENSE 1024

/* Whether a head goes this way. starts: where the support of each of its queries begins. */
static int is_dense(const Shape *shape, const int64_t *starts)
{
    return shape->keys <= MOST_DENSE && shape->queries <= MOST_DENSE && !shape->dropout.factor &&
           DENSE * (starts[shape->queries] - starts[0]) >= shape->queries * shape->keys;
}

/* `panels` vectors of each of TOGETHER sums, of which there are `number`; numbers behind `size` are none */
static inline __attribute__((always_inline)) void add_panels(const vec *weights, long number, const float *rows,
                                                             long stride, int count, long size, int panels, int whole,
                                                             float *sums, long sums_stride)
{
    const float(*cells)[LANES] = (const float(*)[LANES])weights;
    vec sum[PANELS][TOGETHER] = {{{0}}};
    for (int k = 0; k < count; k++, rows += stride) {
        vec row[PANELS];
        for (int p = 0; p < panels; p++)
            row[p] = whole ? vec_at(rows + p * LANES) : load_part(rows + p * LANES, size - p * LANES, 0.0f);
        for (int t = 0; t < TOGETHER; t++)
            for (int p = 0; p < panels; p++) sum[p][t] += row[p] * cells[t][k];
    }
    for (int t = 0; t < TOGETHER && t < number; t++)
        for (int p = 0; p < panels; p++) {
            float *to = sums + t * sums_stride + p * LANES;
            if (whole) *(given_vec *)to += sum[p][t];
            else store_part(load_part(to, size - p * LANES, 0.0f) + sum[p][t], to, size - p * LANES);
        }
}

/* sums[i] += the sum of weights[i][k] rows[k] over the rows in the lanes. Reads up to TOGETHER weights behind. */
static inline void add_rows(const vec *weights, long number, const float *rows, long stride, int count, long size,
                            float *sums, long sums_stride)
{
    for (long i = 0; i < number; i += TOGETHER) {
        float *to = sums + i * sums_stride;
        long c = 0;
        for (; c + PANELS * LANES <= size; c += PANELS * LANES)
            add_panels(weights + i, number - i, rows + c, stride, count, size, PANELS, 1, to + c, sums_stride);
        for (; c < size; c += LANES)
            add_panels(weights + i, number - i, rows + c, stride, count, size - c, 1, 0, to + c, sums_stride);
    }
}

/* Probabilities of the support of `count` queries into lanes, from key `low` on */
static void scatter(const int64_t *starts, const int32_t *keys, const float *probs, int count, long low, long number,
                    vec *lanes)
{
    Lanes cells = (Lanes)lanes;
    if (starts[count] - starts[0] == count * number) {
        rows_into_lanes(probs + starts[0], number, count, number, 1.0f, lanes);
        return;
    }
    memset(lanes, 0, number * sizeof *lanes);
    for (int k = 0; k < count; k++)
        for (int64_t i = starts[k]; i < starts[k + 1]; i++) cells[keys[i] - low][k] = probs[i];
}

/* The gradients of a block of queries; what it gives to those of keys and values is added. starts: of its queries.
 * broken gets NaN where not all that is written is finite. Returns the gradient of epsilon, if it is wanted. */
static double differentiate_lanes(const Shape *shape, long sentence, long head, long first, const Gradients *g,
                                  const int64_t *starts, const int32_t *keys, const float *probs, Rows *rows,
                                  vec *broken)
{
    Block *block = &rows->block;
    int count = smaller(shape->queries - first, LANES);
    long low = shape->keys, high = 0, size = shape->size;
    for (int k = 0; k < count; k++) {
        if (starts[k] == starts[k + 1]) continue;
        low = smaller(low, keys[starts[k]]);
        if (keys[starts[k + 1] - 1] >= high) high = keys[starts[k + 1] - 1] + 1;
    }
    long number = high > low ? high - low : 0;
    const float *query = matrix(&g->query, sentence, head) + first * g->query.row,
                *grad = matrix(&g->grad, sentence, head) + first * g->grad.row;
    vec epsilon = epsilon_of(shape, head);
    vec *p = block->array[PROBS], *for_probs = block->array[GRADS], *for_scores = block->array[SENSITIVITIES];
    vec *lanes = (vec *)rows->queries;
    scatter(starts, keys, probs, count, low, number, p);
    rows_into_lanes(grad, g->grad.row, count, size, 1.0f, lanes);
    dot_listed(lanes, size, matrix(&g->value, sentence, head), g->value.row, rows->visible + low, number, for_probs);
    block->length = number;
    for (long i = 0; i < number; i++) for_probs[i] = ZERO_UNLESS(p[i] != 0.0f, for_probs[i]);
    vec for_epsilon = differentiate(block, epsilon, g->for_alpha != 0);
    for (long i = 0; i < number; i++) for_scores[i] = ZERO_UNLESS(p[i] != 0.0f, for_scores[i] * shape->scale);
    mix_listed(for_scores, matrix(&g->key, sentence, head), g->key.row, rows->visible + low, number, size, lanes);
    for (long c = 0; c < size; c++) *broken += lanes[c] * 0.0f;
    lanes_to_given(lanes, count, size, matrix(&g->for_query, sentence, head) + first * g->for_query.row,
                   g->for_query.row);
    add_rows(for_scores, number, query, g->query.row, count, size,
             matrix(&g->for_key, sentence, head) + low * g->for_key.row, g->for_key.row);
    add_rows(p, number, grad, g->grad.row, count, size,
             matrix(&g->for_value, sentence, head) + low * g->for_value.row, g->for_value.row);
    double sum = 0;
    for (int k = 0; k < count; k++) sum += for_epsilon[k];
    return sum;
}

/* All gradients of a head, and that of epsilon of each block of queries, if it is wanted. starts: of its queries.
 * Returns 0 where they are not all finite: a sum over all keys is 0 times what a list leaves out. */
static int differentiate_head(const Shape *shape, long sentence, long head, const Gradients *g, const int64_t *starts,
                              const int32_t *keys, const float *probs, double *for_alpha, Rows *rows)
{
    float *sums[] = {matrix(&g->for_key, sentence, head), matrix(&g->for_value, sentence, head)};
    long strides[] = {g->for_key.row, g->for_value.row}, size = shape->size;
    vec broken[4] = {{0}};
    prefetch_next(shape, &g->grad, sentence, head, shape->queries);
    prefetch_next(shape, &g->value, sentence, head, shape->keys);
    prefetch_next(shape, &g->key, sentence, head, shape->keys);
    prefetch_next(shape, &g->query, sentence, head, shape->queries);
    for (long j = 0; j < shape->keys; j++) {
        rows->visible[j] = j;
        for (int i = 0; i < 2; i++) memset(sums[i] + j * strides[i], 0, size * sizeof(float));
    }
    for (long first = 0; first < shape->queries; first += LANES)
        for_alpha[first / LANES] = differentiate_lanes(shape, sentence, head, first, g, starts + first, keys, probs,
                                                       rows, broken);
    for (long j = 0; j < shape->keys; j++)
        for (int i = 0; i < 2; i++)
            for (long c = 0; c < size; c += LANES)
                broken[j % 2 * 2 + i] += load_part(sums[i] + j * strides[i] + c, size - c, 0.0f) * 0.0f;
    return !any(broken[0] + broken[1] + broken[2] + broken[3] != 0.0f);
}
