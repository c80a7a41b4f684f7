/* Finds the support of a block of queries: first the keys that can be in it, then those that are. For attention_rows.h
 * and decoding.h. */

/* A product takes PANELS vectors of keys and TOGETHER queries at a time: as many sums as fit the registers */
#define PANELS 3
#define TOGETHER (LANES == 16 ? 8 : 4)

/* A dense head takes GROUP blocks of queries together, so that the sums of all keys are read and written once for all
 * of them; more would not stay in the caches */
#define GROUP (LANES == 16 ? 2 : 4)

/* A thread's working memory. Each row has room for `row` numbers, a multiple of LANES. */
typedef struct {
    Block block;
    float *packed;  /* panels of LANES keys, (size, LANES) each */
    float *queries; /* (LANES, width): scaled; (width, LANES) if rows are short. Backward: gradients of outputs */
    float *rows;    /* (LANES, row): scores, then the distances that are kept, then probabilities */
    int32_t *places;  /* (LANES, row): the places in `visible` of the keys in `rows` */
    int32_t *visible; /* (keys,): the keys of the sentence that are not padding */
    int32_t *keys;    /* (LANES * keys,): the support of the queries, one after another */
    float *probs;     /* the probabilities of these keys */
    int32_t numbers[LANES];  /* how many keys are in the support of each query */
    long row, width, number; /* number: of visible keys */
    long packed_one;         /* the place of the head whose keys are packed; -1 at the start */
    int is_short;            /* the queries are in the lanes, and keys are not packed */
    int is_dense;            /* `rows` has every visible key of each query, with a probability that may be 0 */
} Rows;

static int make_rows(Rows *rows, const Shape *shape, int arrays)
{
    long keys = up_to_lanes(shape->keys), width = up_to_lanes(shape->size);
    *rows = (Rows){.row = keys + LANES, .width = width, .packed_one = -1, .is_short = shape->keys <= FEW_TO_PACK};
    long blocks = arrays == BACKWARD_ARRAYS ? GROUP : 1;
    rows->block = make_block(blocks * (rows->row + LANES), arrays);
    long packed = rows->is_short ? LANES : (keys + LANES) * width;
    rows->packed = aligned_alloc(sizeof(vec), packed * sizeof(float));
    rows->queries = aligned_alloc(sizeof(vec), GROUP * LANES * width * sizeof(float));
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
    free(rows->block.memory), free(rows->packed), free(rows->queries), free(rows->rows);
    free(rows->places), free(rows->visible), free(rows->keys), free(rows->probs);
}

/* --- scores -------------------------------------------------------------------------------- */

/* Lists the keys of a sentence that are not padding */
static void list_visible(Rows *rows, const Shape *shape, long sentence)
{
    const uint8_t *padding = shape->padding ? shape->padding + sentence * shape->keys : 0;
    rows->number = 0;
    for (long j = 0; j < shape->keys; j++)
        if (!padding || !padding[j]) rows->visible[rows->number++] = j;
}

/* Packs the visible keys of a head into panels of LANES keys, as multiply reads them */
static void pack_keys(Rows *rows, long size, Matrix keys)
{
    long end = up_to_lanes(rows->number);
    for (long first = 0; first < end; first += LANES) {
        float *panel = rows->packed + first * size;
        const float *row[LANES];
        for (int k = 0; k < LANES; k++) row[k] = row_of(keys, rows->visible[smaller(first + k, rows->number - 1)]);
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

/* Copies `count` rows of `size` numbers, times `scale`, to rows->queries, and fills the rest of it with 0 */
static void copy_rows(const Rows *rows, Matrix from, int count, long size, float scale)
{
    float *to = rows->queries;
    memset(to, 0, LANES * rows->width * sizeof(float));
    for (int k = 0; k < count; k++)
        for (long c = 0; c < size; c++) to[k * rows->width + c] = row_of(from, k)[c] * scale;
}

/* The scores of `count` queries for the first `number` packed keys */
static void multiply(const Rows *rows, int count, long size, long number)
{
    for (long first = 0; first < number; first += PANELS * LANES)
        for (int query = 0; query < count; query += TOGETHER) {
            const float *panel[PANELS], *q = rows->queries + query * rows->width;
            vec sums[PANELS][TOGETHER] = {{{0}}};
            for (int p = 0; p < PANELS; p++)
                panel[p] = rows->packed + smaller(first + p * LANES, number - 1) / LANES * LANES * size;
            for (long c = 0; c < size; c++) {
                vec of_keys[PANELS];
                /* volatile makes the compiler load it into a register once, not once for each query */
                for (int p = 0; p < PANELS; p++) of_keys[p] = *(const volatile vec *)(panel[p] + c * LANES);
                for (int i = 0; i < TOGETHER; i++)
                    for (int p = 0; p < PANELS; p++) sums[p][i] += of_keys[p] * q[i * rows->width + c];
            }
            for (int p = 0; p < PANELS && first + p * LANES < number; p++)
                for (int i = 0; i < TOGETHER; i++)
                    *(vec *)(rows->rows + (query + i) * rows->row + first + p * LANES) = sums[p][i];
        }
}

/* The number of visible keys up to the last one that any of `count` queries from `first` on sees */
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
    if (last < 0) return 0; /* no query sees a key: the mask hides all, or causal queries come before the first key */
    long number = smaller(rows->number, last + 1);
    while (number > 0 && rows->visible[number - 1] > last) number--;
    return number;
}

/* Applies the masks to a row of scores. A key that they hide gets -infinity, even if its score is NaN. */
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

/* Subtracts `origin` from `number` values and keeps those above `least`, with their places (from `given`, or counted
 * from 0). Writes up to a vector behind them; may work in place. Returns how many are kept, and adds them to *sum. */
static inline long keep_places(const float *values, const int32_t *given, long number, float origin, float least,
                               float *kept, int32_t *places, vec *sum)
{
    long count = 0;
    ivec lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    for (long i = 0; i < number; i += LANES) {
        vec value = vec_at(values + i) - origin;
        ivec place = lane + (int32_t)i;
        if (given) memcpy(&place, given + i, sizeof place);
        unsigned bits = bits_above(value, all(least));
        if (number - i < LANES) bits &= (1u << (number - i)) - 1;
        *sum += ZERO_UNLESS((value > least) & (lane < (int32_t)smaller(number - i, LANES)), value);
        squeeze(value, bits, kept + count);
        squeeze((vec)place, bits, (float *)(places + count));
        count += __builtin_popcount(bits);
    }
    return count;
}

/* Whether at least 3 of 4 keys in each row can be in the support. If so all keys are taken, as looking costs less than
 * listing them. Sets the counts of the keys that can be in it. */
static int keeps_most(Rows *rows, long number, const float *tops, vec epsilon)
{
    vec sums[LANES], least = -1.0f / epsilon, bound = least;
    for (int pass = 0; pass < 2; pass++) {
        float lowest[LANES];
        memcpy(lowest, &bound, sizeof lowest);
        for (int k = 0; k < LANES; k++) {
            int32_t left = 0;
            sums[k] = all(0.0f);
            for (long i = 0; i < number; i += LANES) {
                vec distance = vec_at(rows->rows + k * rows->row + i) - tops[k];
                left += __builtin_popcount(bits_above(distance, all(lowest[k])));
                sums[k] += ZERO_UNLESS(distance > lowest[k], distance);
            }
            if (4 * left < 3 * number) return 0; /* with fewer, lists are faster */
            rows->block.counts[k] = left;
        }
        bound = greater(bound_of(sum_across(sums), kept_of(&rows->block), epsilon), least);
    }
    return 1;
}

/* Turns rows of scores into distances, in lanes, of the keys that can be in the support: those above -1 / epsilon and
 * above the bound of the keys kept before; or of all keys, if is_dense. Returns which rows have NaN or +infinity. */
static ivec keep_rows(Rows *rows, int count, long number, vec epsilon)
{
    int32_t *counts = rows->block.counts;
    vec square[LANES], least = -1.0f / epsilon, bound = least;
    float tops[LANES], lowest[LANES];
    long before = 0, left = 0;
    for (int k = 0; k < LANES; k++)
        square[k] = k < count ? tops_of_row(rows->rows + k * rows->row, up_to_lanes(number)) : all(-INFINITY);
    vec top = top_across(square);
    ivec broken = top == INFINITY;
    memcpy(tops, &top, sizeof tops);
    rows->block.length = number;
    rows->is_dense = !any((top == INFINITY) | (top == -INFINITY)) && keeps_most(rows, number, tops, epsilon);
    if (rows->is_dense) {
        rows_into_lanes(rows->rows, rows->row, LANES, number, 1.0f, rows->block.array[DISTANCES]);
        for (long i = 0; i < number; i++) rows->block.array[DISTANCES][i] -= top;
        return broken;
    }
    for (int k = 0; k < LANES; k++) counts[k] = tops[k] == INFINITY || tops[k] == -INFINITY ? 0 : number;
    for (int pass = 0; pass < MOST_PASSES && (pass < 2 || WORTH * (before - left) > before); pass++) {
        if (pass > 0) bound = greater(bound_of(sum_across(square), kept_of(&rows->block), epsilon), least);
        memcpy(lowest, &bound, sizeof lowest);
        before = left, left = 0;
        for (int k = 0; k < LANES; k++) {
            float *row = rows->rows + k * rows->row;
            int32_t *places = rows->places + k * rows->row;
            square[k] = all(0.0f);
            counts[k] = pass ? keep_places(row, places, counts[k], 0.0f, lowest[k], row, places, square + k)
                             : keep_places(row, 0, counts[k], tops[k], lowest[k], row, places, square + k);
            left += counts[k];
        }
    }
    for (int k = 0; k < LANES; k++) *(given_vec *)(rows->rows + k * rows->row + counts[k]) = all(-INFINITY);
    to_lanes(&rows->block, rows->rows, rows->row, -INFINITY, DISTANCES);
    return broken;
}

/* The same for short rows, whose scores it computes in lanes */
static ivec keep_short(Rows *rows, const Shape *shape, Matrix keys, long first, int count, long number, vec epsilon)
{
    vec *scores = rows->block.array[DISTANCES];
    dot_listed(1, (vec *)rows->queries, shape->size, (Listed){keys, rows->visible, number}, scores, 0);
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
        vec sum = {0};
        long left = keep_places(row, 0, number, 0.0f, -INFINITY, row, rows->places + k * rows->row, &sum);
        *(given_vec *)(row + left) = all(-INFINITY);
    }
    to_lanes(&rows->block, rows->rows, rows->row, -INFINITY, DISTANCES);
    return broken;
}

/* Finds the support of `count` queries from `first` on. Returns how many keys it has, for all queries together. */
static long find_support(Rows *rows, const Shape *shape, Matrix keys, long first, int count, vec epsilon)
{
    int32_t *numbers = memset(rows->numbers, 0, sizeof rows->numbers);
    ivec without = epsilon != epsilon, broken; /* solved with another epsilon, then set to NaN */
    epsilon = WHERE(without, all(1.0f), epsilon);
    long number = count_seen(rows, shape, first, count), found = 0;
    if (rows->is_short) {
        broken = keep_short(rows, shape, keys, first, count, number, epsilon);
    } else {
        multiply(rows, count, shape->size, number);
        for (int k = 0; k < count; k++) mask_row(rows, shape, first + k, number, rows->rows + k * rows->row);
        broken = keep_rows(rows, count, number, epsilon);
    }
    broken |= without & has_keys(&rows->block);
    solve(&rows->block, epsilon, (ivec){0});
    lanes_into_rows(rows->block.array[POWERS], rows->block.length, rows->rows, rows->row);
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
    if (any(broken)) rows->is_dense = 0;
    return found;
}
