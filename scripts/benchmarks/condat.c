/* What is compared with: fusedmax and sparsemax a row at a time, with branches where a row needs them.
 *
 * Total variation: Condat 2013, "A direct algorithm for 1D total variation denoising", section 2. Projection
 * on the simplex: Michelot 1986, which drops keys until none is below the threshold. */
#include <math.h>
#include <stdlib.h>

static void prox_tv(const float *x, float *z, int n, float strength)
{
    int start = 0, place = 0, low_end = 0, high_end = 0, last = n - 1;
    float low = x[0] - strength, high = x[0] + strength, low_flux = strength, high_flux = -strength;
    for (;;) {
        if (place == last) {
            if (low_flux < 0) {
                while (start <= low_end) z[start++] = low;
                place = low_end = start;
                low = x[place];
                low_flux = strength;
                high_flux = low + strength - high;
            } else if (high_flux > 0) {
                while (start <= high_end) z[start++] = high;
                place = high_end = start;
                high = x[place];
                high_flux = -strength;
                low_flux = high - strength - low;
            } else {
                low += low_flux / (place - start + 1);
                while (start <= place) z[start++] = low;
                return;
            }
            continue;
        }
        float next = x[place + 1];
        if (next + low_flux < low - strength) {
            while (start <= low_end) z[start++] = low;
            place = low_end = high_end = start;
            low = x[place];
            high = low + 2 * strength;
            low_flux = strength;
            high_flux = -strength;
        } else if (next + high_flux > high + strength) {
            while (start <= high_end) z[start++] = high;
            place = low_end = high_end = start;
            high = x[place];
            low = high - 2 * strength;
            low_flux = strength;
            high_flux = -strength;
        } else {
            place++;
            low_flux += next - low;
            high_flux += next - high;
            if (low_flux >= strength) {
                low += (low_flux - strength) / (place - start + 1);
                low_flux = strength;
                low_end = place;
            }
            if (high_flux <= -strength) {
                high += (high_flux + strength) / (place - start + 1);
                high_flux = -strength;
                high_end = place;
            }
        }
    }
}

static void sparsemax(const float *z, float *p, int n)
{
    float sum = 0, threshold;
    int count = n, before;
    for (int i = 0; i < n; i++) sum += z[i];
    threshold = (sum - 1) / n;
    do {
        before = count;
        sum = 0;
        count = 0;
        for (int i = 0; i < n; i++) {
            sum += z[i] > threshold ? z[i] : 0.0f;
            count += z[i] > threshold;
        }
        threshold = (sum - 1) / count;
    } while (count < before);
    for (int i = 0; i < n; i++) p[i] = z[i] > threshold ? z[i] - threshold : 0.0f;
}

void forward(const float *x, float *p, long rows, int n, float strength)
{
    float *z = malloc(n * sizeof *z);
    for (long row = 0; row < rows; row++) {
        prox_tv(x + row * n, z, n, strength);
        sparsemax(z, p + row * n, n);
    }
    free(z);
}

void backward(const float *p, const float *grad, float *result, long rows, int n)
{
    for (long row = 0; row < rows; row++, p += n, grad += n, result += n) {
        float mean = 0;
        int count = 0;
        for (int i = 0; i < n; i++) {
            mean += p[i] > 0 ? grad[i] : 0.0f;
            count += p[i] > 0;
        }
        mean /= count;
        for (int first = 0, end; first < n; first = end) {
            float sum = 0;
            for (end = first; end < n && p[end] == p[first]; end++) sum += grad[end] - mean;
            for (int i = first; i < end; i++) result[i] = p[first] > 0 ? sum / (end - first) : 0.0f;
        }
    }
}
