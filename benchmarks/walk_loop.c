/* The rival of manifoldrf.signatures.independent_walks (uniform choice): the same records, the same generator,
 * two walkers in turn, the same sums, in the same order. Built by bench_teachers.py with gcc -O3 -march=native. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t target, row;
    union {
        double weight;
        uint64_t bits; /* the degree stands in the last bits of the weight */
    };
} edge_t;

typedef struct {
    uint64_t row, degree, length;
    double load;
} walker_t;

typedef struct {
    uint64_t s0, s1;
} stream_t;

static inline uint64_t next_word(stream_t *s) {
    uint64_t word = s->s0 + s->s1;
    s->s1 ^= s->s0;
    s->s0 = ((s->s0 << 24) | (s->s0 >> 40)) ^ s->s1 ^ (s->s1 << 16);
    s->s1 = (s->s1 << 37) | (s->s1 >> 27);
    return word;
}

static inline int goes_on(uint64_t word, const uint64_t *restrict go_on, const walker_t *w) {
    return (word & 0xffffffffu) < go_on[w->length] && w->degree > 0;
}

static inline uint64_t deposit(double *restrict batch, uint8_t *restrict fresh, uint64_t *restrict listed,
                               uint64_t slot, double value, uint64_t n) {
    batch[slot] += value;
    listed[n] = slot;
    n += fresh[slot];
    fresh[slot] = 0;
    return n;
}

#define STEP(w, word)                                                                          \
    do {                                                                                       \
        const edge_t edge = edges[(w).row + ((((word) >> 32) * (w).degree) >> 32)];             \
        (w).row = edge.row;                                                                    \
        (w).degree = edge.bits & mask;                                                         \
        (w).load *= edge.weight;                                                               \
        (w).length++;                                                                          \
        n = deposit(batch, fresh, listed, (w).length * stride + edge.target,                   \
                    (w).load * deposits[(w).length], n);                                       \
    } while (0)

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the number of steps, or -1 if the results do not fit into `room` entries. `streams` holds four words for
 * each start: the states of its two streams, which Philox makes. */
int64_t walk_loop(const edge_t *restrict edges, const uint64_t *restrict rows, uint64_t mask, int64_t n_nodes,
                  const int64_t *restrict starts, const uint64_t *restrict streams, int64_t n_starts,
                  const double *restrict deposits, const uint64_t *restrict go_on, int64_t n_lengths,
                  int64_t n_walks, int64_t n_batches, uint64_t stride, int64_t room, int64_t *restrict counts,
                  int64_t *restrict slots, double *restrict sums, double *restrict variances) {
    const int64_t n_slots = (n_lengths - 1) * (int64_t)stride + n_nodes;
    double *restrict batch = calloc(n_slots, sizeof(double));
    double *restrict moments = calloc(2 * n_slots, sizeof(double));
    uint8_t *restrict fresh = malloc(n_slots), *restrict new = malloc(n_slots);
    uint64_t *restrict listed = calloc(n_slots + 1, sizeof(uint64_t));
    int64_t *restrict touched = calloc(n_slots + 1, sizeof(int64_t));
    int64_t n_found = 0, n_steps = 0;
    memset(fresh, 1, n_slots);
    memset(new, 1, n_slots);
    for (int64_t s = 0; s < n_starts; s++) {
        const uint64_t start = starts[s];
        const walker_t home = {rows[start], rows[start + 1] - rows[start], 0, 1.0};
        stream_t sa = {streams[4 * s], streams[4 * s + 1]}, sb = {streams[4 * s + 2], streams[4 * s + 3]};
        int64_t n_touched = 0;
        for (int64_t part = 0; part < n_batches; part++) {
            const int64_t size = n_walks * (part + 1) / n_batches - n_walks * part / n_batches;
            int64_t waiting = size - 2;
            walker_t a = home, b = home;
            uint64_t n = deposit(batch, fresh, listed, start, (double)size * deposits[0], 0);
            int a_ended = 0;
            while (waiting >= 0) {
                uint64_t word = next_word(&sa);
                if (goes_on(word, go_on, &a)) {
                    STEP(a, word);
                } else {
                    n_steps += a.length;
                    if (waiting == 0) {
                        a_ended = 1;
                        break;
                    }
                    waiting--;
                    a = home;
                }
                word = next_word(&sb);
                if (goes_on(word, go_on, &b)) {
                    STEP(b, word);
                } else {
                    n_steps += b.length;
                    if (waiting == 0) break;
                    waiting--;
                    b = home;
                }
            }
            if (a_ended) { /* b takes the place of a */
                const stream_t other = sa;
                a = b;
                sa = sb;
                sb = other;
            }
            for (uint64_t word = next_word(&sa); goes_on(word, go_on, &a); word = next_word(&sa)) STEP(a, word);
            n_steps += a.length;
            const double weight = 1.0 / size;
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t slot = listed[i];
                const double value = batch[slot];
                moments[2 * slot] += value;
                moments[2 * slot + 1] += value * value * weight;
                batch[slot] = 0.0;
                fresh[slot] = 1;
                touched[n_touched] = slot;
                n_touched += new[slot];
                new[slot] = 0;
            }
        }
        if (n_touched < n_slots / 16) {
            qsort(touched, n_touched, sizeof(int64_t), ascending);
        } else {
            for (int64_t slot = 0, at = 0; slot < n_slots; slot++) {
                touched[at] = slot;
                at += 1 - new[slot];
            }
        }
        if (n_found + n_touched > room) {
            n_steps = -1;
            break;
        }
        const double share = 1.0 / n_walks, scale = n_batches > 1 ? share / (n_batches - 1) : NAN;
        for (int64_t i = 0; i < n_touched; i++) {
            const int64_t slot = touched[i];
            const double total = moments[2 * slot];
            slots[n_found + i] = slot;
            sums[n_found + i] = total * share;
            variances[n_found + i] = fmax(moments[2 * slot + 1] - total * total * share, 0.0) * scale;
            moments[2 * slot] = moments[2 * slot + 1] = 0.0;
            new[slot] = 1;
        }
        counts[s] = n_touched;
        n_found += n_touched;
    }
    free(batch);
    free(moments);
    free(fresh);
    free(new);
    free(listed);
    free(touched);
    return n_steps;
}
