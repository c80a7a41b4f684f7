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

/* Numbers from c on of each of TOGETHER sums, of which there are `number`: PANELS vectors that are whole, or what there
 * is of one before `size` */
static inline __attribute__((always_inline)) void add_panels(const vec *weights, long number, Matrix rows, int count,
                                                             long c, long size, int whole, Matrix sums)
{
    const float(*cells)[LANES] = (const float(*)[LANES])weights;
    const int panels = whole ? PANELS : 1;
    vec sum[PANELS][TOGETHER] = {{{0}}};
    for (int k = 0; k < count; k++) {
        const float *from = row_of(rows, k) + c;
        vec row[PANELS];
        for (int p = 0; p < panels; p++) row[p] = whole ? vec_at(from + p * LANES) : load_part(from, size - c, 0.0f);
        for (int t = 0; t < TOGETHER; t++)
            for (int p = 0; p < panels; p++) sum[p][t] += row[p] * cells[t][k];
    }
    for (int t = 0; t < TOGETHER && t < number; t++)
        for (int p = 0; p < panels; p++) {
            float *to = row_of(sums, t) + c + p * LANES;
            if (whole) *(given_vec *)to += sum[p][t];
            else store_part(load_part(to, size - c, 0.0f) + sum[p][t], to, size - c);
        }
}

/* sums[i] += the sum of weights[i][k] rows[k] over the rows in the lanes. Reads up to TOGETHER weights behind. */
static inline void add_rows(const vec *weights, long number, Matrix rows, int count, long size, Matrix sums)
{
    for (long i = 0; i < number; i += TOGETHER) {
        Matrix to = {row_of(sums, i), sums.row};
        long c = 0;
        for (; c + PANELS * LANES <= size; c += PANELS * LANES)
            add_panels(weights + i, number - i, rows, count, c, size, 1, to);
        for (; c < size; c += LANES) add_panels(weights + i, number - i, rows, count, c, size, 0, to);
    }
}

/* Probabilities of the support of `count` queries into lanes, from key `low` on */
static void scatter(const Support *support, const int64_t *starts, int count, long low, long number, vec *lanes)
{
    Lanes cells = (Lanes)lanes;
    if (starts[count] - starts[0] == count * number) {
        rows_into_lanes(support->probs + starts[0], number, count, number, 1.0f, lanes);
        return;
    }
    memset(lanes, 0, number * sizeof *lanes);
    for (int k = 0; k < count; k++)
        for (int64_t i = starts[k]; i < starts[k + 1]; i++) cells[support->keys[i] - low][k] = support->probs[i];
}

/* The gradients of a block of queries; what it gives to those of keys and values is added. broken gets NaN where not
 * all that is written is finite. Returns the gradient of epsilon, if it is wanted. */
static double differentiate_lanes(const Shape *shape, Head head, long first, const Gradients *g,
                                  const Support *support, Rows *rows, vec *broken)
{
    Block *block = &rows->block;
    const int64_t *starts = starts_of(support, shape, head) + first;
    int count = smaller(shape->queries - first, LANES);
    long low = shape->keys, high = 0, size = shape->size;
    for (int k = 0; k < count; k++) {
        if (starts[k] == starts[k + 1]) continue;
        low = smaller(low, support->keys[starts[k]]);
        if (support->keys[starts[k + 1] - 1] >= high) high = support->keys[starts[k + 1] - 1] + 1;
    }
    long number = high > low ? high - low : 0;
    Matrix grad = matrix(&g->grad, head, first), for_query = matrix(&g->for_query, head, first);
    vec *p = block->array[PROBS], *for_probs = block->array[GRADS], *for_scores = block->array[SENSITIVITIES];
    vec *lanes = (vec *)rows->queries;
    scatter(support, starts, count, low, number, p);
    rows_into_lanes(grad.data, grad.row, count, size, 1.0f, lanes);
    dot_listed(lanes, size, matrix(&g->value, head, 0), rows->visible + low, number, for_probs);
    block->length = number;
    for (long i = 0; i < number; i++) for_probs[i] = ZERO_UNLESS(p[i] != 0.0f, for_probs[i]);
    vec for_epsilon = differentiate(block, epsilon_of(shape, head), g->for_alpha != 0);
    for (long i = 0; i < number; i++) for_scores[i] = ZERO_UNLESS(p[i] != 0.0f, for_scores[i] * shape->scale);
    mix_listed(for_scores, matrix(&g->key, head, 0), rows->visible + low, number, size, lanes);
    for (long c = 0; c < size; c++) *broken += lanes[c] * 0.0f;
    lanes_to_given(lanes, count, size, for_query.data, for_query.row);
    add_rows(for_scores, number, matrix(&g->query, head, first), count, size, matrix(&g->for_key, head, low));
    add_rows(p, number, grad, count, size, matrix(&g->for_value, head, low));
    double sum = 0;
    for (int k = 0; k < count; k++) sum += for_epsilon[k];
    return sum;
}

/* All gradients of a head, and that of epsilon of each block of queries, if it is wanted. Returns 0 where they are not
 * all finite: a sum over all keys is 0 times what a list leaves out. */
static int differentiate_head(const Shape *shape, Head head, const Gradients *g, const Support *support,
                              double *for_alpha, Rows *rows)
{
    Matrix sums[] = {matrix(&g->for_key, head, 0), matrix(&g->for_value, head, 0)};
    vec broken[4] = {{0}};
    prefetch_next(shape, &g->grad, head, shape->queries);
    prefetch_next(shape, &g->value, head, shape->keys);
    prefetch_next(shape, &g->key, head, shape->keys);
    prefetch_next(shape, &g->query, head, shape->queries);
    for (long j = 0; j < shape->keys; j++) {
        rows->visible[j] = j;
        for (int i = 0; i < 2; i++) memset(row_of(sums[i], j), 0, shape->size * sizeof(float));
    }
    for (long first = 0; first < shape->queries; first += LANES)
        for_alpha[first / LANES] = differentiate_lanes(shape, head, first, g, support, rows, broken);
    for (long j = 0; j < shape->keys; j++)
        for (int i = 0; i < 2; i++)
            for (long c = 0; c < shape->size; c += LANES)
                broken[j % 2 * 2 + i] += load_part(row_of(sums[i], j) + c, shape->size - c, 0.0f) * 0.0f;
    return !any(broken[0] + broken[1] + broken[2] + broken[3] != 0.0f);
}
