/* What attention in float32 is given, and attention with structure: as many queries of one head at a time as
 * a vector has lanes, one in each, without scores in memory. Attention without structure: attention_rows.h.
 *
 * A thread takes whole heads of whole sentences, so that no sum depends on the number of threads.
 * Keys that no query of these can attend to cost nothing after they are seen.
 */

/* A matrix for each sentence and head, of rows with adjacent numbers; strides in numbers */
typedef struct {
    float *data;
    long sentence, head, row;
} Matrices;

typedef struct {
    long sentences, heads, queries, keys, size; /* size: numbers in a query, a key, a value */
    float scale;                                /* of the scores */
    const float *epsilon;                       /* (heads,) */
    const uint8_t *padding;                     /* (sentences, keys), 1 is left out; or null */
    /* Added to the scores; or null. With structure (keys, queries up to a multiple of LANES), else
     * (queries, keys) */
    const float *mask;
    long kind;             /* of structure, see structured.h */
    const float *strength; /* (heads,); null without structure */
    long causal;           /* without structure: query i sees the keys up to i + keys - queries */
    Dropout dropout;       /* without structure */
} Shape;

/* What a thread works on */
typedef struct {
    Block block;
    vec *queries, *outputs; /* size vectors: number c of LANES queries, and of their outputs */
    float *rows[2];         /* (LANES, width): the same, and the gradients of outputs, as rows */
    float *sums[2];         /* (keys, width): the gradients of keys and values */
    int32_t *listed;        /* (keys,): which keys the block has */
    ivec *seen;             /* (1 + keys + 1,): which of all keys the queries see */
    long width;             /* size, up to a multiple of LANES */
} Work;

#define TILE 8

static inline Structure structure_of(const Shape *shape, long head)
{
    return make_structure(shape->kind, all(shape->epsilon[head]), all(shape->kind ? shape->strength[head] : 0.0f));
}

static inline float *matrix(const Matrices *m, long sentence, long head)
{
    return m->data + sentence * m->sentence + head * m->head;
}

static int make_work(Work *work, const Shape *shape, int arrays)
{
    long width = work->width = (shape->size + LANES - 1) / LANES * LANES;
    work->block = make_block(shape->keys + TILE, arrays);
    size_t lanes = 2 * (width + TILE) * sizeof(vec), rows = 2 * LANES * width * sizeof(float),
           sums = 2 * shape->keys * width * sizeof(float);
    work->queries = aligned_alloc(sizeof(vec), lanes + rows + sums);
    work->listed = malloc((shape->keys + TILE) * sizeof(int32_t));
    work->seen = aligned_alloc(sizeof(ivec), (shape->keys + 2) * sizeof(ivec));
    if (!work->block.memory || !work->queries || !work->listed || !work->seen) return 1;
    work->outputs = work->queries + width + TILE;
    work->rows[0] = (float *)(work->queries + 2 * (width + TILE));
    work->rows[1] = work->rows[0] + LANES * width;
    work->sums[0] = work->rows[1] + LANES * width;
    work->sums[1] = work->sums[0] + shape->keys * width;
    return 0;
}

static void free_work(Work *work)
{
    free(work->block.memory);
    free(work->queries);
    free(work->listed);
    free(work->seen);
}

/* Rows of `size` numbers into lanes; missing ones are 0 */
static inline void load_lanes(const float *rows, long stride, int count, long size, float scale, vec *lanes)
{
    float(*cells)[LANES] = (float(*)[LANES])lanes;
    memset(lanes, 0, size * sizeof *lanes);
    for (int k = 0; k < count; k++)
        for (long c = 0; c < size; c++) cells[c][k] = rows[k * stride + c] * scale;
}

static inline void store_lanes(const vec *lanes, float *rows, long stride, int count, long size, float scale)
{
    const float(*cells)[LANES] = (const float(*)[LANES])lanes;
    for (int k = 0; k < count; k++)
        for (long c = 0; c < size; c++) rows[k * stride + c] = cells[c][k] * scale;
}

/* out[i] = sum over c of lanes[c] y[listed[i]][c]: a product of the rows in the lanes with listed ones */
static inline void dot_listed(const vec *restrict lanes, long size, const float *y, long stride,
                              const int32_t *listed, long length, vec *restrict out)
{
    for (long i = 0; i < length; i += TILE) {
        vec sum[TILE] = {{0}};
        const float *row[TILE];
        for (int t = 0; t < TILE; t++) row[t] = y + listed[smaller(i + t, length - 1)] * stride;
        for (long c = 0; c < size; c++)
            for (int t = 0; t < TILE; t++) sum[t] += lanes[c] * row[t][c];
        for (int t = 0; t < TILE; t++) out[i + t] = sum[t];
    }
}

/* out[c] = sum over i of weights[i] y[listed[i]][c]: a mixture of listed rows for each lane */
static inline void mix_listed(const vec *restrict weights, const float *y, long stride, const int32_t *listed,
                              long length, long size, vec *restrict out)
{
    long c = 0;
    for (; c + TILE <= size; c += TILE) {
        vec sum[TILE] = {{0}};
        for (long i = 0; i < length; i++) {
            const float *row = y + listed[i] * stride + c;
            for (int t = 0; t < TILE; t++) sum[t] += weights[i] * row[t];
        }
        for (int t = 0; t < TILE; t++) out[c + t] = sum[t];
    }
    for (; c < size; c++) {
        vec sum = {0};
        for (long i = 0; i < length; i++) sum += weights[i] * y[listed[i] * stride + c];
        out[c] = sum;
    }
}

/* sums[listed[i]] += sum over lanes of weights[i][lane] rows[lane]; rows of `width` numbers */
static inline void add_listed(const vec *restrict weights, const float *restrict rows, const int32_t *listed,
                              long length, long width, float *restrict sums)
{
    const float(*cells)[LANES] = (const float(*)[LANES])weights;
    for (long c = 0; c < width; c += LANES)
        for (long i = 0; i < length; i += TILE) {
            vec sum[TILE] = {{0}};
            for (int k = 0; k < LANES; k++) {
                vec row = *(const vec *)(rows + k * width + c);
                for (int t = 0; t < TILE; t++) sum[t] += row * cells[i + t][k];
            }
            for (int t = 0; t < TILE && i + t < length; t++) *(vec *)(sums + listed[i + t] * width + c) += sum[t];
        }
}

/* --- forward ------------------------------------------------------------------------------- */

/* Which keys the queries of the lanes, from `first` on, may attend to */
static long list_keys(const Shape *shape, long sentence, long first, int32_t *listed)
{
    long length = 0, queries = (shape->queries + LANES - 1) / LANES * LANES;
    for (long j = 0; j < shape->keys; j++) {
        if (shape->padding && shape->padding[sentence * shape->keys + j]) continue;
        if (shape->mask && !any(*(const given_vec *)(shape->mask + j * queries + first) != -INFINITY)) continue;
        listed[length++] = j;
    }
    return length;
}

/* Adds the mask to listed scores; what it leaves out is -infinity. Returns the largest of each query, and in
 * broken which have NaN or infinity. */
static inline vec mask_listed(const Shape *shape, Work *work, long first, int count, long length, ivec *broken)
{
    long queries = (shape->queries + LANES - 1) / LANES * LANES;
    vec *restrict distances = work->block.array[DISTANCES], top = all(-INFINITY);
    ivec there = {0}, found = {0};
    for (int k = 0; k < count; k++) there[k] = -1;
    for (long i = 0; i < length; i++) {
        vec score = distances[i];
        ivec seen = there;
        if (shape->mask) {
            vec added = *(const given_vec *)(shape->mask + work->listed[i] * queries + first);
            seen &= added != -INFINITY; /* also where the score is NaN */
            score += added;
        }
        distances[i] = score = WHERE(seen, score, all(-INFINITY));
        top = WHERE(score > top, score, top);
        found |= score != score;
    }
    *broken = found | (top == INFINITY);
    return top;
}

/* Listed scores to distances from the largest; keys that cannot have a probability are taken from the list */
static inline void drop_listed(Work *work, long length, vec top, vec epsilon, ivec broken)
{
    vec *restrict distances = work->block.array[DISTANCES], least = -1.0f / epsilon;
    vec origin = WHERE(top == -INFINITY, all(0.0f), top);
    ivec counts = {0};
    long kept = 0;
    for (long i = 0; i < length; i++) {
        vec distance = distances[i] - origin;
        ivec can = distance > least;
        counts -= can;
        distances[kept] = distance;
        work->listed[kept] = work->listed[i];
        kept += any(can | broken) != 0;
    }
    memcpy(work->block.counts, &counts, sizeof counts);
    work->block.length = kept;
}

/* Listed scores to distances. Returns which queries have NaN or infinity. */
static ivec keep_listed(const Shape *shape, Work *work, long first, int count, long length, vec epsilon)
{
    ivec broken;
    vec top = mask_listed(shape, work, first, count, length, &broken);
    drop_listed(work, length, top, epsilon, broken);
    return broken;
}

/* Listed scores to probabilities with structure. Returns which queries are to be NaN. */
static ivec map_listed(const Shape *shape, Work *work, long first, int count, long length,
                       const Structure *structure)
{
    Block *block = &work->block;
    vec *restrict distances = block->array[DISTANCES], top;
    ivec broken;
    if (structure->kind == TV) {
        top = mask_listed(shape, work, first, count, length, &broken);
        vec origin = WHERE(top == -INFINITY, all(0.0f), top);
        for (long i = 0; i < length; i++) distances[i] = WHERE(broken, all(-INFINITY), distances[i] - origin);
        block->length = length;
        prox_tv(block, structure->strength, work->listed);
    } else {
        broken = keep_listed(shape, work, first, count, length, epsilon_to_keep(structure, length));
        if (structure->kind == OSCAR) prox_oscar(block, structure->epsilon, structure->strength);
    }
    if (structure->kind == PNORM) {
        solve_pnorm(block, structure->epsilon, structure->strength);
    } else {
        top = all(-INFINITY);
        for (long i = 0; i < block->length; i++) top = WHERE(distances[i] > top, distances[i], top);
        drop_listed(work, block->length, top, structure->epsilon, broken);
        solve_with_ties(block, structure->epsilon, structure->strength > 0.0f);
    }
    return broken | (structure->without & has_keys(block));
}

/* The probabilities of a block of queries, of all keys: (keys, LANES) */
static inline void keep_probs(const Shape *shape, const Work *work, ivec broken, float *probs)
{
    if (any(broken))
        for (long j = 0; j < shape->keys; j++) *(given_vec *)(probs + j * LANES) = ZERO_UNLESS(broken, all(NAN));
    else
        memset(probs, 0, shape->keys * sizeof(vec));
    for (long i = 0; i < work->block.length; i++)
        memcpy(probs + work->listed[i] * LANES, work->block.array[POWERS] + i, sizeof(vec));
}

/* The output of one head in one sentence; probs, if not null, keeps the probabilities of each block
 * of queries: (blocks, keys, LANES). */
static void attend_forward(const Shape *shape, long sentence, long head, Matrices *query, Matrices *key,
                           Matrices *value, Matrices *output, float *probs, Work *work)
{
    Structure structure = structure_of(shape, head);
    float *q = matrix(query, sentence, head), *out = matrix(output, sentence, head);
    for (long first = 0; first < shape->queries; first += LANES) {
        int count = smaller(shape->queries - first, LANES);
        Block *block = &work->block;
        load_lanes(q + first * query->row, query->row, count, shape->size, shape->scale, work->queries);
        long length = list_keys(shape, sentence, first, work->listed);
        dot_listed(work->queries, shape->size, matrix(key, sentence, head), key->row, work->listed, length,
                   block->array[DISTANCES]);
        ivec broken = map_listed(shape, work, first, count, length, &structure);
        vec *p = block->array[POWERS];
        if (any(broken))
            for (long i = 0; i < block->length; i++) p[i] = WHERE(broken, all(NAN), p[i]);
        mix_listed(p, matrix(value, sentence, head), value->row, work->listed, block->length, shape->size,
                   work->outputs);
        store_lanes(work->outputs, out + first * output->row, output->row, count, shape->size, 1.0f);
        if (!probs) continue;
        keep_probs(shape, work, broken, probs);
        probs += shape->keys * LANES;
    }
}

/* --- backward ------------------------------------------------------------------------------ */

typedef struct {
    Matrices query, key, value, grad; /* grad: of the output */
    Matrices for_query, for_key, for_value;
    double *for_alpha;    /* (sentences, heads), or null */
    double *for_strength; /* the same */
} Gradients;

/* Which of all keys the queries of the lanes see, from 1 on, with nothing before them and behind */
static void see_keys(const Shape *shape, long sentence, long first, ivec *seen)
{
    long queries = (shape->queries + LANES - 1) / LANES * LANES;
    seen[0] = seen[shape->keys + 1] = (ivec){0};
    for (long j = 0; j < shape->keys; j++) {
        ivec sees = (ivec){0} - 1;
        if (shape->padding && shape->padding[sentence * shape->keys + j]) sees = (ivec){0};
        else if (shape->mask) sees = *(const given_vec *)(shape->mask + j * queries + first) != -INFINITY;
        seen[j + 1] = sees;
    }
}

/* The gradients of one head in one sentence, from the probabilities that attend_forward kept. */
static void attend_backward(const Shape *shape, long sentence, long head, Gradients *g, const float *probs,
                            Work *work)
{
    Block *block = &work->block;
    Structure structure = structure_of(shape, head);
    ivec *seen = shape->kind == TV && g->for_strength ? work->seen : 0;
    long width = work->width;
    double for_alpha = 0, for_strength = 0;
    float *query = matrix(&g->query, sentence, head), *grad = matrix(&g->grad, sentence, head),
          *for_query = matrix(&g->for_query, sentence, head);
    memset(work->sums[0], 0, 2 * shape->keys * width * sizeof(float));
    memset(work->rows[0], 0, 2 * LANES * width * sizeof(float));
    for (long first = 0; first < shape->queries; first += LANES, probs += shape->keys * LANES) {
        int count = smaller(shape->queries - first, LANES);
        if (count < LANES) memset(work->rows[0], 0, 2 * LANES * width * sizeof(float));
        for (int k = 0; k < count; k++) {
            memcpy(work->rows[0] + k * width, query + (first + k) * g->query.row, shape->size * sizeof(float));
            memcpy(work->rows[1] + k * width, grad + (first + k) * g->grad.row, shape->size * sizeof(float));
        }
        block->length = 0;
        for (long j = 0; j < shape->keys; j++) {
            vec p = *(const given_vec *)(probs + j * LANES);
            block->array[PROBS][block->length] = p;
            work->listed[block->length] = j;
            block->length += any(p != 0.0f) != 0;
        }
        load_lanes(grad + first * g->grad.row, g->grad.row, count, shape->size, 1.0f, work->outputs);
        dot_listed(work->outputs, shape->size, matrix(&g->value, sentence, head), g->value.row, work->listed,
                   block->length, block->array[GRADS]);
        if (seen) see_keys(shape, sentence, first, seen);
        OfParameters of = differentiate_structure(block, &structure, seen, work->listed, g->for_alpha != 0);
        for (int k = 0; k < count; k++) for_alpha += of.for_epsilon[k];
        for (int k = 0; k < count; k++) for_strength += of.for_strength[k];
        vec *for_scores = block->array[SENSITIVITIES];
        mix_listed(for_scores, matrix(&g->key, sentence, head), g->key.row, work->listed, block->length,
                   shape->size, work->outputs);
        store_lanes(work->outputs, for_query + first * g->for_query.row, g->for_query.row, count, shape->size,
                    shape->scale);
        add_listed(for_scores, work->rows[0], work->listed, block->length, width, work->sums[0]);
        add_listed(block->array[PROBS], work->rows[1], work->listed, block->length, width, work->sums[1]);
    }
    float *for_key = matrix(&g->for_key, sentence, head), *for_value = matrix(&g->for_value, sentence, head);
    for (long j = 0; j < shape->keys; j++)
        for (long c = 0; c < shape->size; c++) {
            for_key[j * g->for_key.row + c] = work->sums[0][j * width + c] * shape->scale;
            for_value[j * g->for_value.row + c] = work->sums[1][j * width + c];
        }
    if (g->for_alpha) g->for_alpha[sentence * shape->heads + head] = for_alpha;
    if (g->for_strength) g->for_strength[sentence * shape->heads + head] = for_strength;
}
