/* Alpha-entmax in float32 on as many rows as a vector has lanes, one in each: no sum goes across lanes, and no row has
 * a tail shorter than a vector. The formulas are those of kernels/torch_ops.py.
 */

/* A smaller epsilon changes no digit of softmax */
#define LEAST_EPSILON 1e-9f
/* How far from 1 the sum of a row may remain; the gradient of alpha needs these digits */
#define TOLERANCE 2e-7f
/* The bounds of how far from 1 it may be before the last step: the error of that step is about the cube of this
 * distance, or, for a key at the edge of the support, its power 1 / epsilon */
#define LEAST_CLOSE 1e-5f
#define MOST_CLOSE 3e-3f
/* The first steps are Halley's; after so many, only Newton's method is trusted */
#define MOST_HALLEY 4
/* Sums are made of partial sums of so many numbers, which keeps the digits of long rows */
#define CHUNK 128

/* --- forward ------------------------------------------------------------------------------- */

/* The arrays of the forward pass, and those of the backward pass */
enum { DISTANCES, POWERS, FORWARD_ARRAYS };
enum { PROBS, GRADS, SENSITIVITIES, LOGS, WEIGHTS, BACKWARD_ARRAYS };

/* A thread's working memory: arrays of `length` vectors in use, and how many numbers are kept in each lane */
typedef struct {
    vec *memory, *array[6];
    ivec *places;
    int32_t counts[LANES];
    long length;
} Block;

typedef struct {
    vec total, slope, curve; /* sums over the support of p = u^(1 / epsilon), of q = p / u, and of q / u */
} Sums;

/* Allocates arrays for n numbers in each lane, with more room for numbers that are not kept and for whole squares */
static Block make_block(long n, int arrays)
{
    long size = n + 2 * LANES;
    Block block = {.memory = aligned_alloc(sizeof(vec), (arrays + 1) * size * sizeof(vec))};
    for (int array = 0; array < arrays; array++) block.array[array] = block.memory + array * size;
    block.places = (ivec *)(block.memory + arrays * size);
    return block;
}

static inline ivec counts_of(const Block *block)
{
    ivec counts;
    memcpy(&counts, block->counts, sizeof counts);
    return counts;
}

static inline vec kept_of(const Block *block) { return __builtin_convertvector(counts_of(block), vec); }

/* Which rows have a key that is not masked: the largest score is always kept */
static inline ivec has_keys(const Block *block) { return counts_of(block) > 0; }

/* A smaller u counts as this in sums of q / u, which grow without bound at the edge of the support */
#define LEAST_BASE 0.01f

/* Writes q = p / u for the keys from `first` to before `end`, with p = u^(1 / epsilon), where u is
 * [1 + epsilon distance - tau]_+, and returns the sums. At epsilon = 1 the curve is left at 0, as nothing is curved. */
static inline __attribute__((always_inline)) Sums powers(const Block *block, long first, long end, vec epsilon,
                                                         vec tau, int is_half, int is_one)
{
    const vec *restrict distances = block->array[DISTANCES];
    vec *restrict q = block->array[POWERS], exponent = 1.0f / epsilon - 1.0f;
    Sums sums = {{0}, {0}, {0}};
    for (long i = first; i < end; i++) {
        vec base = distances[i] * epsilon - tau;
        ivec inside = base > -1.0f;
        vec u = ZERO_UNLESS(inside, 1.0f + base), one = ZERO_UNLESS(inside, all(1.0f));
        if (is_one) q[i] = one;
        else if (is_half) q[i] = u;
        else q[i] = ZERO_UNLESS(inside, exp2_of(log2_of(u, base) * exponent));
        sums.slope += q[i];
        sums.total += q[i] * u;
        if (is_half) sums.curve += one;
        else if (!is_one) sums.curve += q[i] * about_inverse(greater(u, all(LEAST_BASE)));
    }
    return sums;
}

static Sums evaluate(const Block *block, vec epsilon, vec tau, int is_half, int is_one)
{
    Sums sums = {{0}, {0}, {0}};
    for (long first = 0; first < block->length; first += CHUNK) {
        long end = smaller(first + CHUNK, block->length);
        Sums part;
        if (is_half) part = powers(block, first, end, epsilon, tau, 1, 0);
        else if (is_one) part = powers(block, first, end, epsilon, tau, 0, 1);
        else part = powers(block, first, end, epsilon, tau, 0, 0);
        sums.total += part.total;
        sums.slope += part.slope;
        sums.curve += part.curve;
    }
    return sums;
}

/* The first tau, from an estimate of the mean of u, in units of m^-epsilon for m kept keys, which is at most 1 (power
 * means). With r = epsilon (1 - epsilon) times the variance of the distances, in squared units, it is 1 - r / 2 to
 * second order, and about (1 - y) exp(y / 2) with y exp(y) = r, by Laplace's method for normal scores. *most becomes
 * the largest tau possible, at which the largest u is one unit. */
static inline vec first_tau(const Block *block, vec epsilon, vec *most)
{
    vec sum = {0}, squares = {0}, least = -1.0f / epsilon;
    vec count = greater(kept_of(block), all(1.0f));
    vec log_count = log2_of(count, count - 1.0f), bound = exp2_of(log_count * -epsilon);
    for (long i = 0; i < block->length; i++) {
        vec distance = block->array[DISTANCES][i];
        distance = ZERO_UNLESS(distance > least, distance);
        sum += distance;
        squares += distance * distance;
    }
    vec mean = sum / count, variance = greater(squares / count - mean * mean, all(0.0f));
    vec r = lesser((epsilon - epsilon * epsilon) * variance / (bound * bound), all(2.0f));
    vec y = r / (1.0f + r), newton = r * exp2_of(y * -LOG2_E);
    y += (newton - y) / (1.0f + newton);
    vec tau = 1.0f + epsilon * mean - bound * (1.0f - y) * exp2_of(y * (0.5f * LOG2_E));
    *most = one_minus_exp(log_count * epsilon * LN_2); /* keeps the digits of a small epsilon */
    tau = WHERE(tau < *most, tau, *most);
    return ZERO_UNLESS(tau > 0.0f, tau);
}

/* A compensated sum: when many equal numbers are added, their rounding errors are alike and do not cancel */
static inline vec exact_sum(const vec *restrict numbers, long n)
{
    vec total = {0}, rest = {0};
    for (long first = 0; first < n; first += 8) {
        vec few[2] = {{0}, {0}};
        for (long i = first; i < smaller(first + 8, n); i++) few[i % 2] += numbers[i];
        vec next = few[0] + few[1] - rest, sum = total + next;
        rest = (sum - total) - next;
        total = sum;
    }
    return total;
}

/* A last step for lanes with ties: many keys at the same distance share one rounding error, so that the sum may be far
 * from 1 even at the best threshold in float32 */
static inline void balance(const Block *block, vec epsilon, ivec has_ties, vec slope, int is_half, int is_one)
{
    vec *restrict p = block->array[POWERS], total = exact_sum(p, block->length), exponent = 1.0f - epsilon;
    vec excess = total - 1.0f, step = excess / WHERE(slope > 0.0f, slope, all(1.0f));
    has_ties &= (excess < 1e-3f) & (excess > -1e-3f);
    step = ZERO_UNLESS(has_ties, step);
    for (long i = 0; i < block->length; i++) {
        ivec inside = p[i] > 0.0f;
        vec sensitivity = all(1.0f);
        if (is_half) sensitivity = root_of(p[i]);
        else if (!is_one)
            sensitivity = exp2_of(log2_of(WHERE(inside, p[i], all(1.0f)), p[i] - 1.0f) * exponent);
        vec moved = p[i] - step * sensitivity;
        p[i] = ZERO_UNLESS(inside & (moved > 0.0f), moved);
    }
}

/* How far the threshold must move from where the sums were taken. The norm of u, total^epsilon, is a convex and nearly
 * linear function of it. So Newton's method from below never passes the root; Halley's, which uses the curvature,
 * triples the digits in each step. 1 - total^-epsilon is 1 - r^-power, with r = sqrt(total), by Pade [2/2]. */
static inline vec next_step(Sums sums, vec epsilon, int step)
{
    vec power = 2.0f * epsilon, excess = (sums.total - 1.0f) / (1.0f + root_of(sums.total));
    vec below = 1.0f + excess * ((1.0f + epsilon) + excess * ((1.0f + power) * (1.0f + epsilon) * (1.0f / 6)));
    vec newton = power * excess * (1.0f + 0.5f * excess) * sums.total / (below * sums.slope);
    if (step >= MOST_HALLEY) return newton;
    vec bend = (1.0f / epsilon - 1.0f) * (sums.curve * sums.total - sums.slope * sums.slope);
    bend /= sums.slope * sums.total;
    bend = lesser(greater(0.5f * newton * bend, all(-0.5f)), all(0.5f));
    return newton / (1.0f - bend);
}

/* Turns the powers at a threshold close to the root into probabilities, by a last second-order step for each key */
static inline void finish(const Block *block, vec epsilon, vec tau, Sums sums)
{
    const vec *restrict distances = block->array[DISTANCES];
    vec *restrict q = block->array[POWERS], excess = ZERO_UNLESS(sums.total > 0.0f, sums.total - 1.0f);
    vec slope = WHERE(sums.slope > 0.0f, sums.slope, all(1.0f)), step = excess / slope, half = 0.5f - 0.5f * epsilon;
    for (int i = 0; i < 2; i++) step = excess / (slope - half * sums.curve * step);
    vec least = epsilon * step, bend = half * step * step;
    for (long i = 0; i < block->length; i++) {
        vec base = distances[i] * epsilon - tau, u = 1.0f + base;
        vec moved = (u - step) + bend * about_inverse(greater(u, all(LEAST_BASE)));
        q[i] = ZERO_UNLESS((u > least) & (moved > 0.0f), q[i] * moved);
    }
}

/* Turns `length` distances from the largest score in each lane, of which `counts` can be in the support, into
 * probabilities. has_ties: the lanes to balance. */
static inline void solve(const Block *block, vec epsilon, ivec has_ties)
{
    int is_half = !any(epsilon != 0.5f), is_one = !any(epsilon != 1.0f);
    vec most, tau = first_tau(block, epsilon, &most), close = exp2_of(epsilon * -23.0f);
    close = lesser(greater(close, all(LEAST_CLOSE)), all(MOST_CLOSE));
    Sums sums;
    for (int step = 0;; step++) {
        sums = evaluate(block, epsilon, tau, is_half, is_one);
        ivec far = sums.total > 1.0f + close;
        /* Past the root, through rounding or Halley's method: the next step leads back below it */
        if (step <= MOST_HALLEY) far |= (sums.total < 1.0f - close) & (sums.total > 0.0f);
        if (step == MOST_ITERATIONS || !any(far)) break;
        vec moved = lesser(tau + next_step(sums, epsilon, step), most);
        if (step > MOST_HALLEY) far &= moved > tau;
        if (!any(far)) break;
        tau = WHERE(far, moved, tau);
    }
    finish(block, epsilon, tau, sums);
    if (any(has_ties)) balance(block, epsilon, has_ties, sums.slope, is_half, is_one);
}

/* --- backward ------------------------------------------------------------------------------ */

#define LEAST_NORMAL 1.1754944e-38f

/* (exp(-x) - 1 + x) / x^2 near 0: 1/2 - x/6 + x^2/24 - ... */
static inline vec phi_series(vec x)
{
    const float others[] = {2.7557319e-7f, -2.7557319e-6f, 2.4801587e-5f,  -1.9841270e-4f, 1.3888889e-3f,
                            -8.3333333e-3f, 4.1666667e-2f, -1.6666667e-1f, 0.5f};
    vec y = all(-2.5052108e-8f);
    for (int i = 0; i < 9; i++) y = y * x + others[i];
    return y;
}

/* s = p^(1 - epsilon); with `logs` also log p, and the p w of torch_ops.alpha_gradient. One exponential, p^-epsilon,
 * serves both s and p w. Where p is 0 or NaN, so are they. */
static inline void derive(const Block *block, long first, long end, vec epsilon, int logs)
{
    const vec *restrict p = block->array[PROBS];
    vec *restrict s = block->array[SENSITIVITIES], *restrict log_p = block->array[LOGS],
        *restrict weight = block->array[WEIGHTS], scale = 1.0f / (epsilon * epsilon);
    for (long i = first; i < end; i++) {
        vec safe = WHERE(p[i] < LEAST_NORMAL, all(LEAST_NORMAL), p[i]);
        vec log2_p = log2_of(safe, safe - 1.0f);
        vec power = exp2_of(log2_p * -epsilon);
        s[i] = p[i] * power;
        if (!logs) continue;
        vec log = log2_p * LN_2, x = log * epsilon;
        vec near = phi_series(x) * log * log, far = (power - 1.0f + x) * scale;
        log_p[i] = log;
        weight[i] = p[i] * WHERE(x > -1.0f, near, far);
    }
}

typedef struct {
    vec weight, weighted, mean, entropy, curvature; /* sums of s, s g, p g, -p log p, p w */
} Means;

static inline Means means(const Block *block, long first, long end, int logs)
{
    const vec *restrict p = block->array[PROBS], *restrict grad = block->array[GRADS],
              *restrict s = block->array[SENSITIVITIES], *restrict log_p = block->array[LOGS],
              *restrict weight = block->array[WEIGHTS];
    Means sums = {{0}, {0}, {0}, {0}, {0}};
    for (long i = first; i < end; i++) {
        sums.weight += s[i];
        sums.weighted += s[i] * grad[i];
        sums.mean += p[i] * grad[i];
        if (!logs) continue;
        sums.entropy -= p[i] * log_p[i];
        sums.curvature += weight[i];
    }
    return sums;
}

typedef struct {
    vec weight, mean, log; /* sums of p w, p and p log p, each times the centred gradient */
} Products;

static inline Products products(const Block *block, long first, long end, vec mean)
{
    const vec *restrict p = block->array[PROBS], *restrict grad = block->array[GRADS],
              *restrict log_p = block->array[LOGS], *restrict weight = block->array[WEIGHTS];
    Products sums = {{0}, {0}, {0}};
    for (long i = first; i < end; i++) {
        vec centred = grad[i] - mean, moved = p[i] * centred;
        sums.weight += weight[i] * centred;
        sums.mean += moved;
        sums.log += moved * log_p[i];
    }
    return sums;
}

/* As torch_ops.alpha_gradient */
static inline vec alpha_gradient(const Means *sums, const Products *total, vec epsilon)
{
    vec above = 1.0f + epsilon * sums->entropy;
    vec result = sums->curvature * (total->mean - epsilon * total->log) - above * total->weight;
    return result / (above + epsilon * epsilon * sums->curvature);
}

static void sqrt_or_support(const Block *block, int is_half)
{
    const vec *restrict p = block->array[PROBS];
    vec *restrict s = block->array[SENSITIVITIES];
    for (long i = 0; i < block->length; i++)
        if (is_half) s[i] = root_of(p[i]);
        else s[i] = WHERE(p[i] > 0.0f, all(1.0f), p[i]);
}

/* The gradients of `length` keys in each lane: those of the scores replace the sensitivities, that of alpha is
 * returned, or 0 if it is not requested. */
static inline vec differentiate(const Block *block, vec epsilon, int for_alpha)
{
    int is_half = !any(epsilon != 0.5f), is_one = !any(epsilon != 1.0f);
    if (!for_alpha && (is_half || is_one)) sqrt_or_support(block, is_half);
    else derive(block, 0, block->length, epsilon, for_alpha);
    Means sums = {{0}, {0}, {0}, {0}, {0}};
    for (long first = 0; first < block->length; first += CHUNK) {
        Means part = means(block, first, smaller(first + CHUNK, block->length), for_alpha);
        sums.weight += part.weight;
        sums.weighted += part.weighted;
        sums.mean += part.mean;
        sums.entropy += part.entropy;
        sums.curvature += part.curvature;
    }
    vec *restrict s = block->array[SENSITIVITIES], *restrict grad = block->array[GRADS];
    vec middle = sums.weighted / WHERE(sums.weight == 0.0f, all(1.0f), sums.weight);
    for (long i = 0; i < block->length; i++) s[i] *= grad[i] - middle;
    if (!for_alpha) return all(0.0f);
    Products total = {{0}, {0}, {0}};
    for (long first = 0; first < block->length; first += CHUNK) {
        Products part = products(block, first, smaller(first + CHUNK, block->length), sums.mean);
        total.weight += part.weight;
        total.mean += part.mean;
        total.log += part.log;
    }
    return alpha_gradient(&sums, &total, epsilon);
}
