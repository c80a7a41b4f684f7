/* sq-pnorm-max (Niculae and Blondel 2017) on a block of rows, one in each lane: the y on the simplex that maximises
 * z.y - gamma / 2 |y|_p^2. Let epsilon = p - 1, r = 1 / epsilon, u = [z - tau]_+, s = max u, and v = u / s, which is
 * 1 - w with w = (max z - z) / s. Then s solves
 *
 *     phi(s) = s A^((1 - r) / (1 + r)) B = gamma        A = sum v^(r + 1), B = sum v^r
 *
 * and y = v^r / B. Differences of nearly equal sums are written as sums of w.
 */

#define MOST_PNORM_STEPS 40

typedef struct {
    vec a, b, first, second; /* sums of v^(r + 1), v^r, v^r w, v^(r - 1) w^2 */
} Spread;

static inline Spread spread_of(const vec *restrict distances, vec *restrict y, long first, long end, vec inverse,
                               vec exponent, int is_half, int is_one)
{
    Spread sums = {{0}, {0}, {0}, {0}};
    for (long i = first; i < end; i++) {
        vec w = -inverse * distances[i];
        ivec inside = w < 1.0f;
        w = ZERO_UNLESS(inside, w);
        vec v = 1.0f - w, power = v;
        if (is_one) power = all(1.0f);
        else if (!is_half) power = exp2_of(log2_of(v, -w) * exponent);
        power = ZERO_UNLESS(inside, power);
        vec share = power * v;
        y[i] = share;
        sums.a += share * v;
        sums.b += share;
        sums.first += share * w;
        sums.second += power * w * w;
    }
    return sums;
}

static Spread spread(const Block *block, vec epsilon, vec inverse, int is_half, int is_one)
{
    Spread sums = {{0}, {0}, {0}, {0}};
    vec exponent = 1.0f / epsilon - 1.0f;
    for (long first = 0; first < block->length; first += CHUNK) {
        Spread part = spread_of(block->array[DISTANCES], block->array[POWERS], first,
                                smaller(first + CHUNK, block->length), inverse, exponent, is_half, is_one);
        sums.a += part.a;
        sums.b += part.b;
        sums.first += part.first;
        sums.second += part.second;
    }
    return sums;
}

/* (1 - r) B^2 / A + r sum v^(r - 1), which is at least B^2 / A */
static inline vec curvature_of(const Spread *sums, vec epsilon)
{
    vec ratio = sums->first / sums->a, rest = sums->second - sums->first * ratio;
    return sums->b * sums->b / sums->a + ZERO_UNLESS(rest > 0.0f, rest) / epsilon;
}

/* A^((1 - r) / (1 + r)) */
static inline vec norm_power(vec a, vec epsilon)
{
    return exp2_of(log2_of(a, a - 1.0f) * ((epsilon - 1.0f) / (epsilon + 1.0f)));
}

/* Turns the distances from the largest score in each lane into probabilities, by Newton's method on s. It starts at
 * gamma, the largest s possible, and is kept between bounds. */
static void solve_pnorm(const Block *block, vec epsilon, vec gamma)
{
    int is_half = !any(epsilon != 0.5f), is_one = !any(epsilon != 1.0f);
    vec high = gamma, low, s = gamma, count = greater(__builtin_convertvector(counts_of(block), vec), all(1.0f));
    low = gamma * 0.999f * exp2_of(log2_of(count, count - 1.0f) * (-2.0f * epsilon / (1.0f + epsilon)));
    Spread sums;
    for (int step = 0;; step++) {
        sums = spread(block, epsilon, 1.0f / s, is_half, is_one);
        if (step == MOST_PNORM_STEPS) break;
        vec power = norm_power(sums.a, epsilon), excess = s * power * sums.b - gamma;
        vec moved = s - excess / (power * curvature_of(&sums, epsilon));
        high = WHERE(excess > 0.0f, s, high);
        low = WHERE(excess < 0.0f, s, low);
        ivec within = (moved >= low) & (moved <= high);
        moved = WHERE(within, moved, 0.5f * (low + high));
        vec change = WHERE(moved > s, moved - s, s - moved);
        ivec far = change > 1.5e-7f * s;
        if (!any(far)) break;
        s = WHERE(far, moved, s);
    }
    vec inverse = 1.0f / WHERE(sums.b > 0.0f, sums.b, all(1.0f));
    for (long i = 0; i < block->length; i++) block->array[POWERS][i] *= inverse;
}

/* --- backward ------------------------------------------------------------------------------- */

typedef struct {
    vec for_epsilon, for_strength;
} OfParameters;

/* From the probabilities and the largest, `top`: log v into LOGS, w into WEIGHTS, and v^(r - 1) into SENSITIVITIES */
static inline Spread shares_of(const Block *block, vec epsilon, vec top)
{
    const vec *restrict y = block->array[PROBS];
    vec *restrict power = block->array[SENSITIVITIES], *restrict logs = block->array[LOGS],
        *restrict weights = block->array[WEIGHTS], inverse = 1.0f / WHERE(top > 0.0f, top, all(1.0f));
    Spread sums = {{0}, {0}, {0}, {0}};
    for (long i = 0; i < block->length; i++) {
        vec share = y[i] * inverse;
        ivec inside = share >= LEAST_NORMAL;
        share = WHERE(inside, share, all(1.0f));
        share = WHERE(share > 1.0f, all(1.0f), share);
        vec log = log2_of(share, share - 1.0f) * epsilon * LN_2, w = one_minus_exp(-log), v = 1.0f - w;
        share = ZERO_UNLESS(inside, share);
        power[i] = share / v;
        logs[i] = log;
        weights[i] = w;
        sums.a += share * v;
        sums.b += share;
        sums.first += share * w;
        sums.second += power[i] * w * w;
    }
    return sums;
}

/* The gradients of `length` keys in each lane: those of the scores replace the sensitivities, those of epsilon and
 * gamma are returned. NaN in a probability, or in the gradient of one in the support, stays NaN. */
static OfParameters differentiate_pnorm(const Block *block, vec epsilon, vec gamma)
{
    const vec *restrict y = block->array[PROBS], *restrict grad = block->array[GRADS],
              *restrict logs = block->array[LOGS], *restrict weights = block->array[WEIGHTS];
    vec *restrict power = block->array[SENSITIVITIES], top = {0}, level = {0}, mean = {0};
    for (long i = 0; i < block->length; i++) {
        level = WHERE(y[i] > top, grad[i], level);
        top = WHERE(y[i] > top, y[i], top);
    }
    /* Relative to the gradient of the largest probability, to which the mean is close if it is nearly 1 */
    for (long i = 0; i < block->length; i++) mean += y[i] * (grad[i] - level);
    Spread sums = shares_of(block, epsilon, top);
    vec r = 1.0f / epsilon, a = WHERE(sums.a > 0.0f, sums.a, all(1.0f)), ratio = sums.first / a;
    vec b = WHERE(sums.b > 0.0f, sums.b, all(1.0f)), total = {0}, log_a = {0}, log_b = {0}, moved = {0};
    sums = (Spread){a, b, sums.first, sums.second};
    for (long i = 0; i < block->length; i++) {
        vec centred = grad[i] - level - mean, share = power[i] * (1.0f - weights[i]);
        total += power[i] * weights[i] * centred;
        log_a += share * (1.0f - weights[i]) * logs[i];
        log_b += share * logs[i];
        moved += share * logs[i] * centred;
    }
    vec curvature = curvature_of(&sums, epsilon), norm = norm_power(a, epsilon);
    /* If sum v^r g = 0, H g = norm / gamma r v^(r - 1) g; and H 1 = norm / gamma times `one` below */
    vec factor = norm / gamma, share_of_one = total * r / curvature, for_gamma = {0};
    for (long i = 0; i < block->length; i++) {
        vec v = 1.0f - weights[i];
        vec one = power[i] * (r * (weights[i] - v * ratio) + v * b / a);
        vec result = factor * (r * power[i] * (grad[i] - level - mean) - share_of_one * one);
        result = WHERE(y[i] == y[i], result, y[i]);
        for_gamma += result * weights[i];
        power[i] = result;
    }
    log_a /= a, log_b /= b;
    vec shrunk = epsilon / (1.0f + epsilon); /* 1 / (1 + r) */
    vec slope = 2.0f * shrunk * shrunk * log2_of(a, a - 1.0f) * LN_2;
    slope = (slope - (epsilon - 1.0f) / (epsilon + 1.0f) * log_a - log_b) * b / curvature;
    return (OfParameters){-r * r * (moved / b + slope * r * total / b), for_gamma / (norm * b)};
}
