/* The calls of attention and of decoding, for sanitized.c. */

#define SENTENCES 2
#define HEADS 3

/* (sentences, positions, heads, size), as projections lie in memory */
static Matrices positions_first(long positions, long size, float spread)
{
    return (Matrices){numbers(SENTENCES * positions * HEADS * size, spread), positions * HEADS * size, size,
                      HEADS * size};
}

typedef struct {
    long queries, keys, size, causal;
    int padded, masked;
    float dropout;
} Case;

typedef struct {
    float *output, *for_query, *for_key, *for_value;
    double alphas[SENTENCES * HEADS];
} Results;

static uint8_t *padding_of(const Case *of)
{
    uint8_t *padding = room(SENTENCES * of->keys);
    memset(padding, 0, SENTENCES * of->keys);
    /* The last sentence is shorter, and may be nothing but padding */
    for (long key = of->keys / 2; key < of->keys; key++) padding[(SENTENCES - 1) * of->keys + key] = 1;
    return padding;
}

static float *mask_of(long rows, long row)
{
    float *mask = numbers(rows * row, 0.5f);
    for (long i = 0; i < rows * row; i++)
        if (uniform() < 0.2) mask[i] = -INFINITY;
    return mask;
}

static Shape shape_of(const Case *of, const uint8_t *padding, const float *mask)
{
    Dropout dropout = {12345678901, (uint32_t)(of->dropout * 4294967296.0), of->dropout > 0 ? 1 / (1 - of->dropout) : 0};
    return (Shape){SENTENCES, HEADS, of->queries, of->keys, of->size, 0.7f, EPSILONS, padding, mask,
                   .causal = of->causal, .dropout = dropout};
}

static void attend(const Case *of, Matrices *inputs, const uint8_t *padding, const float *mask, int threads,
                   Results *results)
{
    Shape shape = shape_of(of, padding, mask);
    long blocks = SENTENCES * HEADS * (up_to_lanes(of->queries) / LANES), most = blocks * LANES * of->keys;
    int64_t *starts = calloc(blocks * LANES + 1, sizeof(int64_t));
    int32_t *keys = room(most * (sizeof(int32_t) + sizeof(float)));
    float *probs = (float *)(keys + most);
    Attention out = {inputs[0], inputs[1], inputs[2], positions_first(of->queries, of->size, 0)}, again = out;
    check(!entmax_attention_forward(&shape, &out, &(Support){starts, keys, probs}, threads), "memory");
    long total = starts[blocks * LANES];
    check(total >= 0 && total <= most, "the length of the support");
    /* As long as the support, not longer */
    int32_t *own_keys = room(total * sizeof(int32_t));
    float *own_probs = room(total * sizeof(float)), *for_scores = room(total * sizeof(float)),
          *weights = of->dropout > 0 ? room(total * sizeof(float)) : 0;
    memcpy(own_keys, keys, total * sizeof(int32_t));
    memcpy(own_probs, probs, total * sizeof(float));
    for (long i = 0; i < total; i++) check(own_keys[i] >= 0 && own_keys[i] < of->keys, "a key of the support");

    Gradients gradients = {inputs[0], inputs[1], inputs[2], inputs[3], positions_first(of->queries, of->size, 0),
                           positions_first(of->keys, of->size, 0), positions_first(of->keys, of->size, 0),
                           results->alphas, for_scores, weights};
    Shape without_masks = shape_of(of, 0, 0);
    check(!entmax_attention_backward(&without_masks, &gradients, &(Support){starts, own_keys, own_probs}, threads), "");
    /* And where no backward pass follows */
    again.output = positions_first(of->queries, of->size, 0);
    check(!entmax_attention_forward(&shape, &again, &(Support){0}, threads), "memory");
    check(are_equal(out.output.data, again.output.data, SENTENCES * HEADS * of->queries * of->size * sizeof(float)),
          "attention with and without what it keeps");
    results->output = out.output.data;
    results->for_query = gradients.for_query.data;
    results->for_key = gradients.for_key.data;
    results->for_value = gradients.for_value.data;
    free(again.output.data), free(starts), free(keys), free(own_keys), free(own_probs), free(for_scores);
    free(weights);
}

static void attention(const Case *of, int threads)
{
    Matrices inputs[] = {positions_first(of->queries, of->size, 2), positions_first(of->keys, of->size, 2),
                         positions_first(of->keys, of->size, 1), positions_first(of->queries, of->size, 1)};
    uint8_t *padding = of->padded ? padding_of(of) : 0;
    float *mask = of->masked ? mask_of(of->queries, of->keys) : 0;
    Results one, several;
    attend(of, inputs, padding, mask, 1, &one);
    attend(of, inputs, padding, mask, threads, &several);
    size_t queries = SENTENCES * HEADS * of->queries * of->size * sizeof(float),
           keys = SENTENCES * HEADS * of->keys * of->size * sizeof(float);
    check(are_equal(one.output, several.output, queries), "outputs on one thread and on several");
    check(are_equal(one.for_query, several.for_query, queries), "gradients of queries on several threads");
    check(are_equal(one.for_key, several.for_key, keys), "gradients of keys on several threads");
    check(are_equal(one.for_value, several.for_value, keys), "gradients of values on several threads");
    check(are_equal(one.alphas, several.alphas, sizeof one.alphas), "gradients of alpha on several threads");
    for (int i = 0; i < 4; i++) free(inputs[i].data);
    free(one.output), free(one.for_query), free(one.for_key), free(one.for_value);
    free(several.output), free(several.for_query), free(several.for_key), free(several.for_value);
    free(padding), free(mask);
}

/* --- decoding ------------------------------------------------------------------------------------- */

/* A step of a decoder's own attention, whose hypotheses took each other's place before */
static void step_of_own(long hypotheses, long keys, long size, long beam, int threads)
{
    long width = hypotheses * HEADS * size, store = keys + 3, cells = hypotheses * HEADS * store * size;
    float *query = numbers(width, 2), *new_key = numbers(width, 2), *new_value = numbers(width, 1),
          *output = room(width * sizeof(float)), *probs = room(hypotheses * HEADS * keys * sizeof(float)),
          *key = numbers(cells, 2), *value = numbers(cells, 1);
    int32_t *origins = room(hypotheses * store * sizeof(int32_t));
    for (long i = 0; i < hypotheses * store; i++) origins[i] = (int32_t)(uniform() * hypotheses);
    Step step = {hypotheses, HEADS, keys, size, 0.7f, EPSILONS, query, new_key, new_value, output, probs, key, value,
                 HEADS * store * size, store * size, size, origins, store, beam, 0};
    check(!entmax_attention_step(&step, threads), "memory");
    for (long row = 0; row < hypotheses * HEADS; row++)
        check(are_probabilities(probs + row * keys, keys), "weights of a step");
    step.probs = 0;
    check(!entmax_attention_step(&step, 1), "memory");
    free(query), free(new_key), free(new_value), free(output), free(probs), free(key), free(value), free(origins);
}

/* A step of attention to a source, which hypotheses of a beam share */
static void step_of_source(long hypotheses, long keys, long size, long beam, int threads)
{
    long places = hypotheses / beam, width = hypotheses * HEADS * size, cells = places * HEADS * keys * size;
    float *query = numbers(width, 2), *output = room(width * sizeof(float)),
          *probs = room(hypotheses * HEADS * keys * sizeof(float)), *key = numbers(cells, 2),
          *value = numbers(cells, 1), *padding = room(places * keys * sizeof(float));
    int32_t *origins = room(hypotheses * sizeof(int32_t));
    for (long i = 0; i < hypotheses; i++) origins[i] = (int32_t)(i / beam);
    for (long i = 0; i < places * keys; i++) padding[i] = i % keys > keys / 2;
    Step step = {hypotheses, HEADS, keys, size, 0.7f, EPSILONS, query, 0, 0, output, probs, key, value,
                 keys * HEADS * size, size, HEADS * size, origins, 0, beam, padding};
    check(!entmax_attention_step(&step, threads), "memory");
    for (long row = 0; row < hypotheses * HEADS; row++)
        check(are_probabilities(probs + row * keys, keys), "weights of a step across");
    free(query), free(output), free(probs), free(key), free(value), free(padding), free(origins);
}
