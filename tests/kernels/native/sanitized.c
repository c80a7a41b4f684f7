/* Every function of the library, on arrays that are exactly as long as it is told, at the sizes at
 * which its loops begin, end and change: built with a sanitizer by test_sanitizers.py.
 *
 * Exits with 0 where all results are what they have to be; what a sanitizer finds ends it otherwise.
 * With an argument it does on purpose what is to be found: overrun, own-overrun, leak, overflow, race.
 *
 * GUARDED: the end of each array, of the library's own too, is the end of the memory that can be touched. Sanitizers
 * do not see what the instructions for parts of vectors read and write; this does.
 */
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GUARDED
#include "guarded.c"
#endif
#include "kernels.c"

#include "team.c"

static uint64_t state = 88172645463325252u;
static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

static long checks;
static void check(int is_right, const char *what)
{
    checks++;
    if (is_right) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(3);
}

/* Not from aligned_alloc: what Python hands over is aligned as it may be */
static void *room(size_t bytes) { return malloc(bytes ? bytes : 1); }

static float *numbers(long count, float spread)
{
    float *values = room(count * sizeof(float));
    for (long i = 0; i < count; i++) values[i] = (float)(2 * uniform() - 1) * spread;
    return values;
}

static int are_equal(const void *a, const void *b, size_t bytes) { return !bytes || !memcmp(a, b, bytes); }

static int are_probabilities(const float *probs, long n)
{
    double sum = 0;
    int above = 1;
    for (long i = 0; i < n; i++) {
        sum += probs[i];
        above &= probs[i] >= 0;
    }
    return above && fabs(sum - 1) < 1e-4;
}

static const float EPSILONS[] = {0.0f, 0.5f, 1.0f, 0.33f};
#define EPSILON_COUNT 4

/* --- the mapping on rows ------------------------------------------------------------------------ */

/* masks: some keys of each row but the first, and all keys of the last of several rows */
static float *row_scores(long rows, long n, int masks)
{
    float *scores = numbers(rows * n, 6);
    for (long row = 0; row < rows && masks; row++)
        for (long i = 1; i < n; i++)
            if (uniform() < 0.3) scores[row * n + i] = -INFINITY;
    return scores;
}

static void rows_in_float32(long rows, long n, int threads)
{
    float *scores = row_scores(rows, n, n > 3), *grad = numbers(rows * n, 1), *probs = room(rows * n * sizeof(float)),
          *for_scores = room(rows * n * sizeof(float)), *for_alpha = room(rows * sizeof(float)),
          *other = room(rows * n * sizeof(float));
    check(!entmax_rows_forward(scores, 0, EPSILONS, 1, EPSILON_COUNT, 0, 0, 0, probs, rows, n, threads), "memory");
    check(!entmax_rows_forward(scores, 0, EPSILONS, 1, EPSILON_COUNT, 0, 0, 0, other, rows, n, 1), "memory");
    check(are_equal(probs, other, rows * n * sizeof(float)), "rows on one thread and on several");
    for (long row = 0; row < rows; row++) check(are_probabilities(probs + row * n, n), "rows");
    for (int wanted = 1; wanted < 4; wanted++)
        check(!entmax_rows_backward(probs, 0, EPSILONS, 1, EPSILON_COUNT, 0, 0, 0, 0, grad, wanted & 1 ? for_scores : 0,
                                    wanted & 2 ? for_alpha : 0, 0, rows, n, threads),
              "memory");
    for (long row = 0; row < rows; row++) {
        double sum = 0;
        for (long i = 0; i < n; i++) sum += for_scores[row * n + i];
        check(fabs(sum) < 1e-3, "gradients of a row have the sum 0");
    }
    free(scores), free(grad), free(probs), free(for_scores), free(for_alpha), free(other);
}

/* NaN and infinity go no further than their rows, and rows without any key are 0 */
static void broken_rows(long n, int threads)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX};
    long rows = 6, bytes = rows * n * sizeof(float);
    float *scores = numbers(rows * n, 1), *grad = numbers(rows * n, 1), *probs = room(bytes), *for_scores = room(bytes);
    for (int row = 0; row < 5; row++)
        for (long i = 0; i < n; i++) scores[row * n + i] = wrong[row];
    check(!entmax_rows_forward(scores, 0, EPSILONS + 1, 1, 1, 0, 0, 0, probs, rows, n, threads), "memory");
    for (long i = 0; i < n; i++) {
        check(probs[i] != probs[i] && probs[n + i] != probs[n + i], "NaN and infinity give NaN");
        check(probs[2 * n + i] == 0, "rows without any key are 0");
    }
    for (int row = 3; row < rows; row++) check(are_probabilities(probs + row * n, n), "rows beside NaN");
    check(!entmax_rows_backward(probs, 0, EPSILONS + 1, 1, 1, 0, 0, 0, 0, grad, for_scores, 0, 0, rows, n, threads), "");
    for (int kind = TV; kind <= PNORM; kind++) {
        check(!entmax_rows_forward(scores, kind, EPSILONS + 1, 1, 1, EPSILONS + 1, 1, 1, probs, rows, n, threads), "");
        check(are_probabilities(probs + 5 * n, n), "structured rows beside NaN");
    }
    int64_t target[6] = {0}, support[6];
    LossRow kept[6];
    float loss[6], prob[6];
    check(!entmax_loss_forward(scores, target, 0.5, 0.1, loss, support, prob, kept, rows, n, threads), "memory");
    check(loss[0] != loss[0] && loss[2] == INFINITY && loss[5] == loss[5], "losses beside NaN");
    check(!entmax_loss_backward(scores, target, 0.5, 0.1, prob, kept, grad, for_scores, rows, n, threads), "memory");
    free(scores), free(grad), free(probs), free(for_scores);
}

static void structured_rows(int kind, long rows, long n, int threads)
{
    static const float strengths[] = {0.1f, 2.0f, 0.0f};
    float *scores = row_scores(rows, n, n > 3), *grad = numbers(rows * n, 1), *probs = room(rows * n * sizeof(float)),
          *for_scores = room(rows * n * sizeof(float)), *for_epsilon = room(rows * sizeof(float)),
          *for_strength = room(rows * sizeof(float));
    uint8_t *masked = room(rows * n);
    for (long i = 0; i < rows * n; i++) masked[i] = scores[i] == -INFINITY;
    check(!entmax_rows_forward(scores, kind, EPSILONS, 1, EPSILON_COUNT, strengths, 1, 3, probs, rows, n, threads), "");
    for (long row = 0; row < rows; row++) check(are_probabilities(probs + row * n, n), "structured rows");
    for (int all = 0; all < 2; all++)
        check(!entmax_rows_backward(probs, kind, EPSILONS, 1, EPSILON_COUNT, strengths, 1, 3, all ? masked : 0, grad,
                                    for_scores, all ? for_epsilon : 0, all ? for_strength : 0, rows, n, threads),
              "memory");
    free(scores), free(grad), free(probs), free(for_scores), free(for_epsilon), free(for_strength), free(masked);
}

static void losses(long rows, long n, double epsilon, double smoothing, int threads)
{
    float *scores = row_scores(rows, n, 0), *loss = room(rows * sizeof(float)), *prob = room(rows * sizeof(float)),
          *grad = numbers(rows, 1), *for_scores = room(rows * n * sizeof(float));
    int64_t *target = room(rows * sizeof(int64_t)), *support = room(rows * sizeof(int64_t));
    LossRow *kept = room(rows * sizeof(LossRow));
    for (long row = 0; row < rows; row++) target[row] = (int64_t)(uniform() * n);
    check(!entmax_loss_forward(scores, target, epsilon, smoothing, loss, support, prob, kept, rows, n, threads), "");
    check(!entmax_loss_backward(scores, target, epsilon, smoothing, prob, kept, grad, for_scores, rows, n, threads),
          "memory");
    for (long row = 0; row < rows; row++) check(loss[row] > -1e-4 && support[row] <= n, "losses");
    free(scores), free(loss), free(prob), free(grad), free(for_scores), free(target), free(support), free(kept);
}

/* --- attention ------------------------------------------------------------------------------------ */

#define SENTENCES 2
#define HEADS 3
#define ROOM_FROM_THE_START 160 /* as in attention.py */

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
    int has_room = of->keys <= ROOM_FROM_THE_START;
    void **pieces = has_room ? 0 : calloc(blocks + 1, sizeof(void *));
    int32_t *keys = has_room ? room(most * sizeof(int32_t)) : 0;
    float *probs = has_room ? room(most * sizeof(float)) : 0;
    Matrices output = positions_first(of->queries, of->size, 0);
    check(!entmax_attention_forward(&shape, inputs, inputs + 1, inputs + 2, &output, starts, pieces, keys, probs,
                                    threads), "memory");
    long total = starts[blocks * LANES];
    check(total >= 0 && total <= most, "the length of the support");
    if (!has_room) {
        keys = room(total * sizeof(int32_t));
        probs = room(total * sizeof(float));
        entmax_attention_take(pieces, starts, blocks, keys, probs);
        free(pieces);
    }
    /* As long as the support, not longer */
    int32_t *own_keys = room(total * sizeof(int32_t));
    float *own_probs = room(total * sizeof(float)), *for_scores = room(total * sizeof(float)),
          *weights = of->dropout > 0 ? room(total * sizeof(float)) : 0;
    memcpy(own_keys, keys, total * sizeof(int32_t));
    memcpy(own_probs, probs, total * sizeof(float));
    for (long i = 0; i < total; i++) check(own_keys[i] >= 0 && own_keys[i] < of->keys, "a key of the support");

    Gradients gradients = {inputs[0], inputs[1], inputs[2], inputs[3], positions_first(of->queries, of->size, 0),
                           positions_first(of->keys, of->size, 0), positions_first(of->keys, of->size, 0),
                           results->alphas};
    Shape without_masks = shape_of(of, 0, 0);
    check(!entmax_attention_backward(&without_masks, &gradients, starts, own_keys, own_probs, for_scores, weights,
                                     threads),
          "memory");
    /* And where no backward pass follows */
    Matrices again = positions_first(of->queries, of->size, 0);
    check(!entmax_attention_forward(&shape, inputs, inputs + 1, inputs + 2, &again, 0, 0, 0, 0, threads), "memory");
    check(are_equal(output.data, again.data, SENTENCES * HEADS * of->queries * of->size * sizeof(float)),
          "attention with and without what it keeps");
    results->output = output.data;
    results->for_query = gradients.for_query.data;
    results->for_key = gradients.for_key.data;
    results->for_value = gradients.for_value.data;
    free(again.data), free(starts), free(keys), free(probs), free(own_keys), free(own_probs), free(for_scores);
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

/* --- all of it ------------------------------------------------------------------------------------ */

static void everything(int threads)
{
    static const long lengths[] = {1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES + 2, 129, 300};
    for (int i = 0; i < 8; i++) {
        long n = lengths[i];
        for (long rows = 1; rows <= 2 * LANES + 1; rows += LANES) {
            rows_in_float32(rows, n, threads);
            for (int kind = TV; kind <= PNORM; kind++) structured_rows(kind, rows, n, threads);
        }
        broken_rows(n, threads);
        for (int of = 0; of < EPSILON_COUNT; of++) {
            losses(5, n, EPSILONS[of], 0, threads);
            losses(2, n + 1, EPSILONS[of], 0.1, threads);
        }
        long size = i % 2 ? 2 * LANES : LANES + 3, across = n == 300 ? 9 : n;
        for (int causal = 0; causal < 2; causal++)
            for (int masks = 0; masks < 4; masks++) {
                Case of = {across, n, size, causal, masks & 1, masks >> 1, masks == 2 ? 0.3f : 0};
                attention(&of, threads);
            }
        Case few = {2, n, 1, 0, 1, 0, 0.5f};
        attention(&few, threads);
        step_of_own(1, n, size, 1, threads);
        step_of_own(6, n, size, 3, threads);
        step_of_own(2 * KNOWN + 2, n, size, 2, threads);
        step_of_source(6, n, size, 3, threads);
    }
    /* Longer than what is computed in one piece */
    losses(2, 5000, 0.5, 0.1, threads);
    rows_in_float32(3, 2500, threads);
}

/* --- what a sanitizer has to find ----------------------------------------------------------------- */

static void plant(const char *what)
{
    int threads = 2, *shared = calloc(1, sizeof(int));
    if (!strcmp(what, "overrun")) {
        float *scores = numbers(5, 1), *probs = room(4 * sizeof(float));
        entmax_rows_forward(scores, 0, EPSILONS + 1, 1, 1, 0, 0, 0, probs, 1, 5, 1);
    } else if (!strcmp(what, "own-overrun")) {
        Block block = make_block(3, FORWARD_ARRAYS);
        float *scores = numbers(5000, 1e-3f), *probs = room(5000 * sizeof(float));
        Structure structure = make_structure(0, all(0.5f), all(0.0f));
        forward_block(scores, &structure, probs, 1, 5000, &block);
    } else if (!strcmp(what, "leak")) {
        char *volatile lost = malloc(100);
        lost[0] = 1;
        lost = 0;
    } else if (!strcmp(what, "overflow")) {
        volatile int most = INT_MAX;
        shared[0] = 1 << (most & 63);
    } else if (!strcmp(what, "race")) {
#pragma omp parallel num_threads(threads)
        for (int i = 0; i < 1000; i++) shared[0]++;
    }
    free(shared);
    fprintf(stderr, "done and not found: %s\n", what);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        plant(arguments[1]);
        return 0;
    }
    everything(4); /* of 6 heads, so that threads share heads */
    printf("%ld checks\n", checks);
    return 0;
}
