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
static const OfRows ALL = {EPSILONS, 1, EPSILON_COUNT}, HALF = {EPSILONS + 1, 1, 1};

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
    check(!entmax_rows_forward(scores, probs, &ALL, rows, n, threads), "memory");
    check(!entmax_rows_forward(scores, other, &ALL, rows, n, 1), "memory");
    check(are_equal(probs, other, rows * n * sizeof(float)), "rows on one thread and on several");
    for (long row = 0; row < rows; row++) check(are_probabilities(probs + row * n, n), "rows");
    for (int wanted = 1; wanted < 4; wanted++) {
        RowGradients of = {probs, 0, grad, wanted & 1 ? for_scores : 0, wanted & 2 ? for_alpha : 0, 0};
        check(!entmax_rows_backward(&of, &ALL, rows, n, threads), "memory");
    }
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
    check(!entmax_rows_forward(scores, probs, &HALF, rows, n, threads), "memory");
    for (long i = 0; i < n; i++) {
        check(probs[i] != probs[i] && probs[n + i] != probs[n + i], "NaN and infinity give NaN");
        check(probs[2 * n + i] == 0, "rows without any key are 0");
    }
    for (int row = 3; row < rows; row++) check(are_probabilities(probs + row * n, n), "rows beside NaN");
    check(!entmax_rows_backward(&(RowGradients){probs, 0, grad, for_scores, 0, 0}, &HALF, rows, n, threads), "memory");
    for (int kind = TV; kind <= PNORM; kind++) {
        check(!entmax_rows_forward(scores, probs, &(OfRows){EPSILONS + 1, 1, 1, EPSILONS + 1, 1, 1, kind}, rows, n, threads), "");
        check(are_probabilities(probs + 5 * n, n), "structured rows beside NaN");
    }
    int64_t target[6] = {0}, support[6];
    LossRow kept[6];
    float loss[6], prob[6];
    Targets targets = {scores, target, prob, kept, 0.5, 0.1, rows, n};
    check(!entmax_loss_forward(&targets, loss, support, threads), "memory");
    check(loss[0] != loss[0] && loss[2] == INFINITY && loss[5] == loss[5], "losses beside NaN");
    check(!entmax_loss_backward(&targets, grad, for_scores, threads), "memory");
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
    OfRows of = {EPSILONS, 1, EPSILON_COUNT, strengths, 1, 3, kind};
    check(!entmax_rows_forward(scores, probs, &of, rows, n, threads), "memory");
    for (long row = 0; row < rows; row++) check(are_probabilities(probs + row * n, n), "structured rows");
    for (int all = 0; all < 2; all++) {
        RowGradients g = {probs, all ? masked : 0, grad, for_scores, all ? for_epsilon : 0, all ? for_strength : 0};
        check(!entmax_rows_backward(&g, &of, rows, n, threads), "memory");
    }
    free(scores), free(grad), free(probs), free(for_scores), free(for_epsilon), free(for_strength), free(masked);
}

static void losses(long rows, long n, double epsilon, double smoothing, int threads)
{
    float *scores = row_scores(rows, n, 0), *loss = room(rows * sizeof(float)), *prob = room(rows * sizeof(float)),
          *grad = numbers(rows, 1), *for_scores = room(rows * n * sizeof(float));
    int64_t *target = room(rows * sizeof(int64_t)), *support = room(rows * sizeof(int64_t));
    LossRow *kept = room(rows * sizeof(LossRow));
    for (long row = 0; row < rows; row++) target[row] = (int64_t)(uniform() * n);
    Targets targets = {scores, target, prob, kept, epsilon, smoothing, rows, n};
    check(!entmax_loss_forward(&targets, loss, support, threads), "memory");
    check(!entmax_loss_backward(&targets, grad, for_scores, threads), "memory");
    for (long row = 0; row < rows; row++) check(loss[row] > -1e-4 && support[row] <= n, "losses");
    free(scores), free(loss), free(prob), free(grad), free(for_scores), free(target), free(support), free(kept);
}

#include "sanitized_attention.c"

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
        entmax_rows_forward(scores, probs, &HALF, 1, 5, 1);
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
