/* The backward pass of attention for dense heads, in which many keys are in the support. Queries are in the lanes. One
 * thread does a whole head, and its support alone decides if it is dense: no sum depends on the number of threads. */

/* A head is dense if at least one in so many pairs of query and key is in the support */
#define DENSE 4

/* Whether a head is dense. starts: where the support of each of its queries begins. */
static int is_dense(const Shape *shape, const int64_t *starts)
{
    return !shape->dropout.factor && DENSE * (starts[shape->queries] - starts[0]) >= shape->queries * shape->keys;
}

/* SUMS sums of rows are computed at once, COLUMNS vectors of each */
#define COLUMNS 2
#define SUMS (LANES == 16 ? 8 : 6)

/* For add_rows: adds to the numbers from c on of SUMS sums, or of `number` if that is less: to COLUMNS whole vectors of
 * each, or only to `part` numbers if that is not 0 */
static inline __attribute__((always_inline)) void add_columns(const vec *weights, long apart, long number, Matrix rows,
                                                              int count, long c, int part, Matrix sums)
{
    const int columns = part ? 1 : COLUMNS;
    vec sum[COLUMNS][SUMS] = {{{0}}};
    for (int first = 0; first < count; first += LANES, weights += apart) {
        const float(*cells)[LANES] = (const float(*)[LANES])weights;
        for (int k = 0; k < smaller(count - first, LANES); k++) {
            const float *from = row_of(rows, first + k) + c;
            vec row[COLUMNS];
            for (int p = 0; p < columns; p++) row[p] = part ? load_part(from, part, 0.0f) : vec_at(from + p * LANES);
            for (int t = 0; t < SUMS; t++)
                for (int p = 0; p < columns; p++) sum[p][t] += row[p] * cells[t][k];
        }
    }
    for (int t = 0; t < SUMS && t < number; t++)
        for (int p = 0; p < columns; p++) {
            float *to = row_of(sums, t) + c + p * LANES;
            if (part) store_part(load_part(to, part, 0.0f) + sum[p][t], to, part);
            else *(given_vec *)to += sum[p][t];
        }
}

/* sums[i] += sum over k of weights[i][k] * rows[k], for `number` sums over `count` rows. A block is LANES rows, and the
 * weights of the next block are `apart` vectors further on. Reads up to SUMS weights behind. */
static inline void add_rows(const vec *weights, long apart, long number, Matrix rows, int count, long size, Matrix sums)
{
    for (long i = 0; i < number; i += SUMS) {
        Matrix to = {row_of(sums, i), sums.row};
        long c = 0;
        for (; c + COLUMNS * LANES <= size; c += COLUMNS * LANES)
            add_columns(weights + i, apart, number - i, rows, count, c, 0, to);
        for (; c < size; c += LANES)
            add_columns(weights + i, apart, number - i, rows, count, c, smaller(size - c, LANES), to);
    }
}

/* The probabilities of `count` queries for `number` keys from `low` on, into lanes; 0 outside the support */
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

/* The gradients of up to GROUP blocks of queries; adds their share to those of keys and values. *broken becomes NaN if
 * a query's gradient is not finite; for_alpha[b] is that of epsilon in block b, 0 if not requested. */
static void differentiate_group(const Shape *shape, Head head, long first, const Gradients *g, const Support *support,
                                Rows *rows, vec *broken, double *for_alpha)
{
    Block block = rows->block;
    const int64_t *starts = starts_of(support, shape, head) + first;
    int count = smaller(shape->queries - first, GROUP * LANES), blocks = up_to_lanes(count) / LANES;
    long low = shape->keys, high = 0, size = shape->size, width = up_to_lanes(size), apart = rows->row + LANES;
    for (int k = 0; k < count; k++) {
        if (starts[k] == starts[k + 1]) continue;
        low = smaller(low, support->keys[starts[k]]);
        if (support->keys[starts[k + 1] - 1] >= high) high = support->keys[starts[k + 1] - 1] + 1;
    }
    block.length = high > low ? high - low : 0;
    Matrix query = matrix(&g->query, head, first), grad = matrix(&g->grad, head, first),
           for_query = matrix(&g->for_query, head, first);
    Listed keys = {matrix(&g->key, head, 0), rows->visible + low, block.length},
           values = {matrix(&g->value, head, 0), rows->visible + low, block.length};
    vec *all_p = block.array[PROBS], *all_scores = block.array[SENSITIVITIES], *lanes = (vec *)rows->queries;
    for (int b = 0; b < blocks; b++) {
        int own = smaller(count - b * LANES, LANES);
        scatter(support, starts + b * LANES, own, low, block.length, all_p + b * apart);
        rows_into_lanes(row_of(grad, b * LANES), grad.row, own, size, 1.0f, lanes + b * width);
    }
    for (int b = 0; b < blocks; b += PAIR)
        dot_listed(blocks - b, lanes + b * width, size, values, block.array[GRADS] + b * apart, apart);
    for (int b = 0; b < blocks; b++) {
        vec *p = block.array[PROBS], *for_probs = block.array[GRADS], *for_scores = block.array[SENSITIVITIES];
        for (long i = 0; i < block.length; i++) for_probs[i] = ZERO_UNLESS(p[i] != 0.0f, for_probs[i]);
        vec for_epsilon = differentiate(&block, epsilon_of(shape, head), g->for_alpha != 0);
        for (long i = 0; i < block.length; i++)
            for_scores[i] = ZERO_UNLESS(p[i] != 0.0f, for_scores[i] * shape->scale);
        for_alpha[b] = 0;
        for (int k = 0; k < LANES; k++) for_alpha[b] += for_epsilon[k];
        for (int array = PROBS; array <= SENSITIVITIES; array++) block.array[array] += apart;
    }
    for (int b = 0; b < blocks; b += PAIR)
        mix_listed(blocks - b, all_scores + b * apart, apart, keys, size, lanes + b * width);
    for (int b = 0; b < blocks; b++) {
        for (long c = 0; c < size; c++) *broken += lanes[b * width + c] * 0.0f;
        lanes_to_given(lanes + b * width, smaller(count - b * LANES, LANES), size, row_of(for_query, b * LANES),
                       for_query.row);
    }
    add_rows(all_scores, apart, block.length, query, count, size, matrix(&g->for_key, head, low));
    add_rows(all_p, apart, block.length, grad, count, size, matrix(&g->for_value, head, low));
}

/* All gradients of a head, and that of epsilon in each block of queries. Returns 0 if they must be recomputed from the
 * lists, as one is not finite: a sum over all keys includes 0 times the numbers that a list leaves out. */
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
    for (long first = 0; first < shape->queries; first += GROUP * LANES)
        differentiate_group(shape, head, first, g, support, rows, broken, for_alpha + first / LANES);
    for (long j = 0; j < shape->keys; j++)
        for (int i = 0; i < 2; i++)
            for (long c = 0; c < shape->size; c += LANES)
                broken[j % 2 * 2 + i] += load_part(row_of(sums[i], j) + c, shape->size - c, 0.0f) * 0.0f;
    return !any(broken[0] + broken[1] + broken[2] + broken[3] != 0.0f);
}
