/* The alpha-entmax loss of a target, and its gradient, on rows of float32, one row at a time.
 *
 * The largest score of each of many parts of a row belongs to some key. The threshold of these keys alone is not above
 * that of all keys, so it tells which can be in the support, and Newton's method works on those. The backward pass
 * recomputes the probabilities from the scores and four numbers per row: it writes only the gradient at full size.
 */

/* A third array of a block, after DISTANCES and POWERS: the scores that are kept */
enum { KEPT = FORWARD_ARRAYS, LOSS_ARRAYS };
/* Up to so many keys are solved in float64 at any alpha: the fewer keys, the smaller the loss, and the larger the share
 * of it that a difference of large numbers loses */
#define FEW_KEYS 64
/* How far a threshold in float32 may be from the exact one, in units of the scores */
#define SAFE_DISTANCE 1e-5f

typedef struct {
    float epsilon, smoothing;
    int is_half, is_one;
} Loss;

/* What the backward pass needs of a row: the largest score; the threshold, as tau = epsilon (theta - top); 1 - tau,
 * which may have digits that tau has lost; the q of each key but the target. All NaN if a score is NaN or +infinity. */
typedef struct {
    float top, tau, rest, other;
} LossRow;

/* Rows of scores, their targets, and what the forward pass leaves for the backward pass */
typedef struct {
    const float *scores;   /* (rows, n) */
    const int64_t *target; /* (rows,), like the next two */
    float *target_prob;
    LossRow *of_rows;
    double epsilon, smoothing;
    long rows, n;
} Targets;

typedef struct {
    double total, slope, lack; /* sums of p, of p / u, and of p (1 - u) */
} RowSums;

static inline Loss loss_of(const Targets *targets)
{
    double epsilon = targets->epsilon < LEAST_EPSILON ? LEAST_EPSILON : targets->epsilon;
    return (Loss){epsilon, targets->smoothing, epsilon == 0.5, epsilon == 1};
}

/* Writes the scores above `least`, then a vector of -inf: `kept` needs room for two vectors more. Returns how many. */
static inline long keep_above(const float *restrict row, long n, float least, float *restrict kept)
{
    long count = 0;
    for (long first = 0; first < n; first += LANES) {
        vec scores = load_part(row + first, n - first, -INFINITY);
        unsigned bits = bits_above(scores, all(least));
        if (!bits) continue;
        squeeze(scores, bits, kept + count);
        count += __builtin_popcount(bits);
    }
    *(given_vec *)(kept + count) = all(-INFINITY);
    return count;
}

/* The threshold tau of one row, whose distances fill block->length vectors, by Newton's method in float32 from below.
 * Leaves the powers at tau in the block. */
static float climb(const Block *block, const Loss *loss, float tau)
{
    vec epsilon = all(loss->epsilon);
    for (int step = 0;; step++) {
        Sums sums = evaluate(block, epsilon, all(tau), loss->is_half, loss->is_one);
        double total = across(sums.total), slope = across(sums.slope);
        if (step == MOST_ITERATIONS || !(total > 1 + TOLERANCE)) return tau;
        float moved = tau - expm1(-loss->epsilon * log(total)) * total / slope;
        if (!(moved > tau)) return tau;
        tau = moved;
    }
}

/* The score that all scores in the support are above, at this threshold or a higher one */
static inline float least_of(const Loss *loss, float top, float tau)
{
    return top + (tau - 1) / loss->epsilon - SAFE_DISTANCE - 4 * FLT_EPSILON * fabsf(top);
}

/* p = [1 + base]_+ ^ (1 / epsilon) of one key */
static inline double power_f64(const Loss *loss, double base)
{
    if (!(base > -1)) return 0;
    return loss->is_half ? (1 + base) * (1 + base) : loss->is_one ? 1 + base : exp(log1p(base) / loss->epsilon);
}

static RowSums sums_f64(const Loss *loss, const float *kept, long count, double top, double tau)
{
    RowSums sums = {0, 0, 0};
    for (long i = 0; i < count; i++) {
        double base = (kept[i] - top) * loss->epsilon - tau, p = power_f64(loss, base);
        sums.total += p;
        sums.slope += p > 0 ? p / (1 + base) : 0;
        sums.lack -= p > 0 ? p * base : 0;
    }
    return sums;
}

/* The same sums, from what evaluate has left in the block */
static RowSums sums_of_block(const Block *block, const Loss *loss, float tau)
{
    RowSums sums = {0, 0, 0};
    for (long first = 0; first < block->length; first += CHUNK) {
        vec total = {0}, slope = {0}, lack = {0};
        for (long i = first; i < smaller(first + CHUNK, block->length); i++) {
            vec q = block->array[POWERS][i], base = block->array[DISTANCES][i] * loss->epsilon - tau;
            vec p = ZERO_UNLESS(base > -1.0f, q + q * base);
            slope += q;
            total += p;
            lack -= ZERO_UNLESS(base > -1.0f, p * base);
        }
        sums.total += across(total);
        sums.slope += across(slope);
        sums.lack += across(lack);
    }
    return sums;
}

/* The threshold of the scores that were kept, found from a lower one, `tau`. *sums are those at the threshold *at,
 * close to the result, from which the last step was taken. */
static double solve_row(Block *block, const Loss *loss, const float *kept, long count, float top, float tau,
                        RowSums *sums, double *at)
{
    vec *restrict distances = block->array[DISTANCES];
    block->length = (count + LANES - 1) / LANES;
    for (long i = 0; i < block->length; i++) distances[i] = *(const given_vec *)(kept + i * LANES) - top;
    *at = climb(block, loss, tau);
    if (count > FEW_KEYS && !loss->is_half && !loss->is_one) {
        *sums = sums_of_block(block, loss, *at);
        return *at - expm1(-loss->epsilon * log(sums->total)) * sums->total / sums->slope;
    }
    for (int step = 0;; step++) {
        *sums = sums_f64(loss, kept, count, top, *at);
        double moved = *at - expm1(-loss->epsilon * log(sums->total)) * sums->total / sums->slope;
        if (step == 4 || !(fabs(moved - *at) > 1e-13)) return moved;
        *at = moved;
    }
}

/* sum_i p_i (z_i - top) + H(p), the conjugate of -H less top, with p divided by its sum. A threshold that is slightly
 * off does no harm, since p maximises this. */
static inline double conjugate_of(const Loss *loss, const RowSums *sums, double tau)
{
    double epsilon = loss->epsilon, total = sums->total, scale = -expm1(-epsilon * log(total));
    double entropy = (sums->lack + scale * (total - sums->lack)) / (total * epsilon * (1 + epsilon));
    return (tau - sums->lack / total) / epsilon + entropy;
}

/* Returns the number of keys that are not masked, and sets *sum to the sum of their distances from `top` */
static inline long seen_keys(const float *restrict row, long n, float top, double *sum)
{
    long seen = 0;
    *sum = 0;
    for (long first = 0; first < n; first += CHUNK * LANES) {
        vec part = {0};
        ivec count = {0};
        for (long i = first; i < smaller(first + CHUNK * LANES, n); i += LANES) {
            vec scores = load_part(row + i, n - i, -INFINITY);
            ivec is_seen = scores > -INFINITY;
            part += ZERO_UNLESS(is_seen, scores - top);
            count -= is_seen;
        }
        *sum += across(part);
        for (int k = 0; k < LANES; k++) seen += count[k];
    }
    return seen;
}

/* Returns the loss of one row of n scores; sets the size of its support, the target's probability, and `row` */
static float loss_row(const float *scores, long n, long target, const Loss *loss, Block *block, int64_t *support,
                      float *target_prob, LossRow *row)
{
    vec *restrict tops = block->array[DISTANCES];
    int has_nan = tops_of_parts(scores, n, tops);
    float top = -INFINITY;
    for (int part = 0; part < PARTS; part++)
        for (int k = 0; k < LANES; k++) top = tops[part][k] > top ? tops[part][k] : top;
    *support = 0;
    *target_prob = 0;
    *row = (LossRow){0, 1, 0, 0};
    if (has_nan || top == INFINITY) {
        *target_prob = NAN;
        *row = (LossRow){NAN, NAN, NAN, NAN};
        return NAN;
    }
    if (top == -INFINITY) return INFINITY;

    for (int part = 0; part < PARTS; part++) tops[part] -= top;
    block->length = PARTS;
    float tau = climb(block, loss, 0) - SAFE_DISTANCE * loss->epsilon;
    tau = tau > 0 ? tau : 0;
    float *kept = (float *)block->array[KEPT];
    long count = keep_above(scores, n, least_of(loss, top, tau), kept);
    RowSums sums;
    double at, final = solve_row(block, loss, kept, count, top, tau, &sums, &at), distance = (double)scores[target] - top;
    for (long i = 0; i < count; i++) *support += ((double)kept[i] - top) * loss->epsilon - final > -1;
    *target_prob = power_f64(loss, distance * loss->epsilon - final);
    *row = (LossRow){top, final, 1 - final, 0};

    double expected = distance;
    if (loss->smoothing > 0) {
        double sum;
        long others = seen_keys(scores, n, top, &sum) - 1;
        if (others > 0) {
            row->other = loss->smoothing / others;
            expected = (1 - loss->smoothing) * distance + loss->smoothing * ((sum - distance) / others);
        }
    }
    if (distance == -INFINITY) return INFINITY; /* the loss if the target is masked */
    float value = conjugate_of(loss, &sums, at) - expected;
    return loss->smoothing == 0 && value < 0 ? 0 : value;
}

/* The gradient of one row: grad (p - q) */
static void loss_gradient_row(const float *restrict scores, long n, long target, float target_prob, const Loss *loss,
                              const LossRow *row, float grad, float *restrict grad_scores)
{
    float own = 1 - loss->smoothing;
    if (loss->smoothing > 0 && row->other == 0) own = 1; /* all other keys are masked */
    if (row->top != row->top || grad != grad || isinf(grad)) {
        /* Not finite even outside the support: infinity times 0 is NaN */
        for (long i = 0; i < n; i++) grad_scores[i] = NAN;
        return;
    }
    float least = least_of(loss, row->top, row->tau);
    vec exponent = all(1.0f / loss->epsilon), other = all(row->other);
    for (long first = 0; first < n; first += LANES) {
        vec seen = load_part(scores + first, n - first, -INFINITY), result = {0};
        if (any(seen > least)) {
            vec scaled = (seen - row->top) * loss->epsilon, base = scaled - row->tau, u = scaled + row->rest;
            ivec inside = u > 0.0f;
            u = ZERO_UNLESS(inside, u);
            if (loss->is_half) result = u * u;
            else if (loss->is_one) result = u;
            else result = ZERO_UNLESS(inside, exp2_of(log2_of(u, base) * exponent));
        }
        if (row->other > 0) result -= ZERO_UNLESS(seen > -INFINITY, other);
        result *= grad;
        store_part(result, grad_scores + first, n - first);
    }
    grad_scores[target] = grad * (target_prob - own);
}
