/* Alpha-entmax in float64, one row at a time. */

#define LEAST_EPSILON_F64 1e-18
#define TOLERANCE_F64 1e-12

/* A row of p = [1 + scaled - tau]_+ ^ (1 / epsilon); returns its sum, and the sum of p / u over the
 * support by *slope. */
static inline double powers_f64(const double *restrict scaled, double *restrict p, long n, double tau,
                                double epsilon, double *slope)
{
    double total = 0, quotients = 0;
    for (long i = 0; i < n; i++) {
        double base = scaled[i] - tau, u = 1 + base;
        int inside = base > -1;
        double value = epsilon == 0.5 ? u * u : epsilon == 1 ? u : inside ? exp(log1p(base) / epsilon) : 0;
        p[i] = inside ? value : 0;
        total += p[i];
        quotients += inside ? p[i] / u : 0;
    }
    *slope = quotients;
    return total;
}

static void forward_row(const double *restrict scores, double *restrict probs, long n, double epsilon,
                        double *restrict scaled, double *restrict p)
{
    double top = -INFINITY;
    int has_nan = 0;
    for (long i = 0; i < n; i++) {
        has_nan |= scores[i] != scores[i];
        top = scores[i] > top ? scores[i] : top;
    }
    if (!has_nan && top == -INFINITY) {
        memset(probs, 0, n * sizeof *probs);
        return;
    }
    if (has_nan || top == INFINITY || epsilon != epsilon) {
        for (long i = 0; i < n; i++) probs[i] = NAN;
        return;
    }
    epsilon = epsilon < LEAST_EPSILON_F64 ? LEAST_EPSILON_F64 : epsilon;
    for (long i = 0; i < n; i++) scaled[i] = (scores[i] - top) * epsilon;
    double tau = 0, total, slope;
    for (int step = 0;; step++) {
        total = powers_f64(scaled, p, n, tau, epsilon, &slope);
        if (step == MOST_ITERATIONS || !(total > 1 + TOLERANCE_F64)) break;
        double moved = tau - expm1(-epsilon * log(total)) * total / slope;
        if (!(moved > tau)) break;
        tau = moved;
    }
    for (long i = 0; i < n; i++) probs[i] = p[i] / total;
}

/* (exp(-x) - 1 + x) / x^2 for x <= 0, 1/2 at 0 */
static inline double phi_f64(double x)
{
    if (x < -0.1) return (expm1(-x) + x) / (x * x);
    double y = -1.0 / 39916800;
    for (int k = 10; k >= 2; k--) {
        static const double factorial[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800};
        y = y * x + (k % 2 ? -1 : 1) / factorial[k];
    }
    return y;
}

static void backward_row(const double *restrict probs, const double *restrict grad, long n, double epsilon,
                         double *restrict grad_scores, double *grad_alpha, double *restrict s,
                         double *restrict logs)
{
    double weights = 0, weighted = 0, mean = 0, exponent = 1 - epsilon;
    for (long i = 0; i < n; i++) {
        /* Zero and NaN stay */
        logs[i] = probs[i] > 0 ? log(probs[i]) : probs[i];
        s[i] = probs[i] > 0 ? exp(logs[i] * exponent) : probs[i];
        weights += s[i];
        weighted += s[i] * grad[i];
        mean += probs[i] * grad[i];
    }
    if (grad_scores) {
        double middle = weighted / (weights == 0 ? 1 : weights);
        for (long i = 0; i < n; i++) grad_scores[i] = s[i] * (grad[i] - middle);
    }
    if (!grad_alpha) return;
    double entropy = 0, curvature = 0, from_weight = 0, from_mean = 0, from_log = 0;
    for (long i = 0; i < n; i++) {
        double centred = grad[i] - mean, moved = probs[i] * centred;
        double weight = logs[i] * logs[i] * phi_f64(epsilon * logs[i]) * probs[i];
        entropy -= probs[i] * logs[i];
        curvature += weight;
        from_weight += weight * centred;
        from_mean += moved;
        from_log += moved * logs[i];
    }
    double above = 1 + epsilon * entropy;
    *grad_alpha = (curvature * (from_mean - epsilon * from_log) - above * from_weight) /
                  (above + epsilon * epsilon * curvature);
}
