/* The loops of manifoldrf that numpy and scipy do not have: plain functions on arrays, without the interpreter lock.

Every function is declared by LOOP(name, kinds), with one letter for each argument:

    d D   float64 array, read or written     i   int32 or int64 array, read
    l L   int64 array, read or written       w   uint32 array, read
    u U   uint64 array, read or written      e E array of Edge, read or written
    n     integer                            x   number

`call` checks kinds, contiguity and writability; a loop checks lengths (NEED). Indices inside arrays are checked by
the constructors of the objects that hold them. A loop returns None, or (integer, bytearray, ...) if it has results
whose sizes are not known before. Sums are in a fixed order and are never contracted to fused operations, so results
have the same bits for any number of threads, and on machines with the same C library.
*/

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Wider vectors where the processor has them; no fused operations, so the bits are the same. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(PLAIN_LOOPS)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* ------------------------------------------------------------------------------------------------- calls */
enum { MOST_ARGUMENTS = 26, MOST_RESULTS = 4, MOST_WORK = 16 };

typedef struct { /* an integer array of either width */
  const int32_t *narrow;
  const int64_t *wide;
} Index;

typedef struct {
  Py_buffer view;
  int64_t n, rows, columns, deep; /* entries, and the first three dimensions (1 where there is none) */
  Index index;
  union {
    void *start;
    double *d;
    int64_t *l;
    uint64_t *u;
    uint32_t *w;
    int64_t i;
    double x;
  };
} Argument;

typedef struct {
  char *start;
  size_t size, room;
} Result;

typedef struct {
  Argument a[MOST_ARGUMENTS];
  Result results[MOST_RESULTS];
  int n_results;
  int64_t number; /* the first result */
  void *work[MOST_WORK];
  int n_work;
  const char *refused; /* the condition that does not hold */
  int no_memory;
} Call;

typedef void (*Loop)(Call *);

#define LOOP(name, kinds)                                                                                              \
  static void loop_##name(Call *c);                                                                                    \
  static PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t n) {                                  \
    (void)module;                                                                                                      \
    return call(arguments, n, kinds, loop_##name);                                                                     \
  }                                                                                                                    \
  static void loop_##name(Call *c)

#define NEED(condition)                                                                                                \
  if (!(condition)) {                                                                                                  \
    c->refused = #condition;                                                                                           \
    return;                                                                                                            \
  }

static inline int64_t at(Index x, int64_t k) { return x.wide ? x.wide[k] : x.narrow[k]; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }

/* Zeros that are freed after the call. */
static void *zeros(Call *c, int64_t n, size_t size) {
  void *found = calloc(n > 0 ? (size_t)n : 1, size);
  if (!found || c->n_work == MOST_WORK) {
    free(found);
    c->no_memory = 1;
    return NULL;
  }
  return c->work[c->n_work++] = found;
}

/* Room for n more entries of a result; NULL without memory. */
static void *extend(Call *c, int which, int64_t n, size_t size) {
  Result *r = &c->results[which];
  size_t more = (size_t)n * size;
  if (r->size + more > r->room) {
    size_t room = 2 * (r->size + more) + 1024;
    char *start = realloc(r->start, room);
    if (!start) {
      c->no_memory = 1;
      return NULL;
    }
    r->start = start;
    r->room = room;
  }
  r->size += more;
  return r->start + (r->size - more);
}

static const struct {
  char kind;
  const char *formats; /* letters of the buffer protocol; NULL for any */
  Py_ssize_t size;
} KINDS[] = {{'d', "d", 8}, {'l', "lq", 8}, {'u', "LQ", 8}, {'w', "IL", 4}, {'i', "lq", 8}, {'i', "il", 4}, {'e', NULL, 16}};

static int fits(const Py_buffer *view, char kind) {
  const char *format = view->format ? view->format : "B";
  if (*format == '<' || *format == '=' || *format == '@') format++;
  int found = 0, one = format[0] && !format[1];
  for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
    found |= KINDS[k].kind == kind && KINDS[k].size == view->itemsize &&
             (!KINDS[k].formats || (one && strchr(KINDS[k].formats, *format)));
  return found && (uintptr_t)view->buf % (view->itemsize > 4 ? 8 : 4) == 0;
}

static int take(Argument *a, PyObject *given, char kind, Py_ssize_t position) {
  if (kind == 'n' || kind == 'x') {
    if (kind == 'n')
      a->i = PyLong_AsLongLong(given);
    else
      a->x = PyFloat_AsDouble(given);
    return PyErr_Occurred() == NULL;
  }
  Py_buffer *view = &a->view;
  if (PyObject_GetBuffer(given, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (kind < 'a' ? PyBUF_WRITABLE : 0)) < 0) {
    view->obj = NULL;
    return 0;
  }
  if (!fits(view, (char)(kind | 32))) { /* a capital is the same kind, written */
    PyErr_Format(PyExc_TypeError, "argument %zd must be an aligned array of kind '%c', got format '%s'", position, kind,
                 view->format ? view->format : "B");
    return 0;
  }
  a->start = view->buf;
  a->n = view->len / view->itemsize;
  a->rows = view->ndim > 0 ? view->shape[0] : 1;
  a->columns = view->ndim > 1 ? view->shape[1] : 1;
  a->deep = view->ndim > 2 ? view->shape[2] : 1;
  a->index.wide = view->itemsize == 8 ? a->start : NULL;
  a->index.narrow = a->start;
  return 1;
}

static PyObject *collected(Call *c) {
  if (!c->n_results) Py_RETURN_NONE;
  PyObject *found = PyTuple_New(1 + c->n_results);
  if (!found) return NULL;
  for (int k = 0; k <= c->n_results; k++) {
    Result *r = &c->results[k - (k > 0)];
    PyObject *part = k ? PyByteArray_FromStringAndSize(r->start, (Py_ssize_t)r->size) : PyLong_FromLongLong(c->number);
    if (!part) {
      Py_DECREF(found);
      return NULL;
    }
    PyTuple_SetItem(found, k, part);
  }
  return found;
}

static PyObject *call(PyObject *const *given, Py_ssize_t n, const char *kinds, Loop loop) {
  PyObject *found = NULL;
  Call *c = calloc(1, sizeof(Call));
  if (!c) return PyErr_NoMemory();
  Py_ssize_t wanted = (Py_ssize_t)strlen(kinds), taken = 0;
  if (n != wanted) {
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed, got %zd", wanted, n);
  } else {
    while (taken < n && take(&c->a[taken], given[taken], kinds[taken], taken)) taken++;
  }
  if (n == wanted && taken == n) {
    Py_BEGIN_ALLOW_THREADS
    loop(c);
    Py_END_ALLOW_THREADS
    if (c->refused)
      PyErr_Format(PyExc_ValueError, "arrays do not fit together: %s", c->refused);
    else if (c->no_memory)
      PyErr_NoMemory();
    else
      found = collected(c);
  }
  for (int k = 0; k < MOST_ARGUMENTS; k++)
    if (c->a[k].view.obj) PyBuffer_Release(&c->a[k].view);
  for (int k = 0; k < c->n_work; k++) free(c->work[k]);
  for (int k = 0; k < MOST_RESULTS; k++) free(c->results[k].start);
  free(c);
  return found;
}

/* ----------------------------------------------------------------------------------------- sparse matrices */
typedef struct {
  Index ends, columns;
  const double *values;
  int64_t n; /* rows */
} Matrix;

/* A CSR matrix from three arguments, after a check of the ends of a range of rows. */
static const char *matrix_of(const Argument *a, int64_t begin, int64_t end, Matrix *m) {
  m->ends = a[0].index;
  m->columns = a[1].index;
  m->values = a[2].d;
  m->n = a[0].n - 1;
  if (m->n < 0 || begin < 0 || begin > end || end > m->n) return "0 <= begin <= end <= n_rows";
  if (a[1].n < a[2].n) return "n_columns >= n_values";
  int64_t last = at(m->ends, begin);
  if (last < 0) return "indptr >= 0";
  for (int64_t i = begin; i < end; i++) {
    int64_t next = at(m->ends, i + 1);
    if (next < last) return "ascending indptr";
    last = next;
  }
  return last <= a[2].n ? NULL : "indptr <= n_values";
}

#define TAKE_MATRIX(m, first, begin, end)                                                                              \
  Matrix m;                                                                                                            \
  if ((c->refused = matrix_of(&c->a[first], begin, end, &m))) return

static int in_range(const Argument *a, int64_t n) {
  for (int64_t k = 0; k < a->n; k++)
    if (a->l[k] < 0 || a->l[k] >= n) return 0;
  return 1;
}

/* Whether ends of rows ascend from at least 0 to at most a limit. */
static int ascending(const Argument *ends, int64_t limit) {
  const int64_t *x = ends->l;
  for (int64_t k = 1; k < ends->n; k++)
    if (x[k] < x[k - 1]) return 0;
  return ends->n > 0 && x[0] >= 0 && x[ends->n - 1] <= limit;
}

/* Sort nodes: by insertion if they are few, else by bytes from the lowest to the highest. */
static void sort_nodes(int64_t *x, int64_t n, int64_t *other) {
  if (n <= 48) {
    for (int64_t k = 1; k < n; k++) {
      int64_t value = x[k], p = k;
      for (; p > 0 && x[p - 1] > value; p--) x[p] = x[p - 1];
      x[p] = value;
    }
    return;
  }
  int64_t bits = 0;
  for (int64_t k = 0; k < n; k++) bits |= x[k];
  int64_t *from = x, *to = other;
  for (int shift = 0; shift < 64 && bits >> shift; shift += 8) {
    int64_t starts[257] = {0};
    for (int64_t k = 0; k < n; k++) starts[((from[k] >> shift) & 255) + 1]++;
    for (int k = 0; k < 256; k++) starts[k + 1] += starts[k];
    for (int64_t k = 0; k < n; k++) to[starts[(from[k] >> shift) & 255]++] = from[k];
    int64_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
}

/* total = scale times row v of a matrix times a table; sums of some columns at a time stay in registers. */
#define TILE(size)                                                                                                     \
  for (; k + size <= width; k += size) {                                                                               \
    double sums[size] = {0};                                                                                           \
    for (int64_t e = begin; e < end; e++) {                                                                            \
      const double value = scale * m.values[e];                                                                        \
      const double *row = table + at(m.columns, e) * width + k;                                                        \
      for (int j = 0; j < size; j++) sums[j] += value * row[j];                                                        \
    }                                                                                                                  \
    for (int j = 0; j < size; j++) total[k + j] = sums[j];                                                             \
  }

static inline void row_times(Matrix m, int64_t v, double scale, const double *table, int64_t width, double *total) {
  int64_t k = 0, begin = at(m.ends, v), end = at(m.ends, v + 1);
  TILE(16)
  TILE(4)
  TILE(1)
}

/* out[i] = row i of a CSR matrix times a table, for i in the span: (indptr, indices, values, table, out, begin, end). */
WIDE static void times_rows(Matrix m, const double *table, int64_t width, double *out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) row_times(m, i, 1.0, table, width, out + i * width);
}

LOOP(times_columns, "iiddDnn") {
  int64_t begin = c->a[5].i, end = c->a[6].i;
  TAKE_MATRIX(m, 0, begin, end);
  NEED(c->a[4].n == m.n * c->a[3].columns)
  times_rows(m, c->a[3].d, c->a[3].columns, c->a[4].d, begin, end);
}

/* previous <- scale M current - previous, total += weight previous, for the rows in the span. The new polynomial
overwrites the one before the last, whose entries are needed only here.
(indptr, indices, values, scale, current, previous, total, weight, begin, end). */
WIDE static void step_rows(Matrix m, const Argument *a, double *fresh) {
  double scale = a[3].x, weight = a[7].x;
  int64_t width = a[4].columns;
  for (int64_t v = a[8].i; v < a[9].i; v++) {
    double *previous = a[5].d + v * width, *total = a[6].d + v * width;
    row_times(m, v, scale, a[4].d, width, fresh);
    for (int64_t j = 0; j < width; j++) {
      double advanced = fresh[j] - previous[j];
      previous[j] = advanced;
      total[j] += weight * advanced;
    }
  }
}

LOOP(step_columns, "iidxdDDxnn") {
  TAKE_MATRIX(m, 0, c->a[8].i, c->a[9].i);
  NEED(c->a[4].n == m.n * c->a[4].columns && c->a[5].n == c->a[4].n && c->a[6].n == c->a[4].n)
  double *fresh = zeros(c, c->a[4].columns, sizeof *fresh);
  if (fresh) step_rows(m, c->a, fresh);
}

/* Sums along each row up to every entry, in this order: (indptr, indices, values, sums). */
LOOP(sum_along_rows, "iidD") {
  TAKE_MATRIX(m, 0, 0, c->a[0].n - 1);
  NEED(c->a[3].n == c->a[2].n)
  for (int64_t v = 0; v < m.n; v++) {
    double total = 0.0;
    for (int64_t e = at(m.ends, v); e < at(m.ends, v + 1); e++) c->a[3].d[e] = total += m.values[e];
  }
}

/* out[i] += rows[i] @ table for i in the span: (rows, table, out, begin, end). */
LOOP(add_product, "iidiidDnn") {
  int64_t begin = c->a[7].i, end = c->a[8].i;
  TAKE_MATRIX(rows, 0, begin, end);
  TAKE_MATRIX(table, 3, 0, c->a[3].n - 1);
  NEED(c->a[6].rows == rows.n)
  for (int64_t i = begin; i < end; i++) {
    double *target = c->a[6].d + i * c->a[6].columns;
    for (int64_t p = at(rows.ends, i); p < at(rows.ends, i + 1); p++) {
      double weight = rows.values[p];
      int64_t j = at(rows.columns, p);
      for (int64_t q = at(table.ends, j); q < at(table.ends, j + 1); q++)
        target[at(table.columns, q)] += weight * table.values[q];
    }
  }
}

/* ------------------------------------------------------------------------------------------ random words */
/* xoroshiro128+ streams that Philox 4x32-10 seeds, a pure function of key and counter (Salmon, Moraes, Dror and Shaw,
"Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter holds the start node and the lane, so a stream
has the same bits in any thread and in any order. */
typedef struct {
  uint64_t a, b;
} Stream;

static const uint64_t LOW = 0xFFFFFFFFu;

static Stream stream_of(uint64_t start, uint64_t lane, const uint32_t *key) {
  uint64_t a = start & LOW, b = start >> 32, x = lane & LOW, y = lane >> 32, k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p = 0xD2511F53u * a, q = 0xCD9E8D57u * x;
    a = (q >> 32) ^ b ^ k0;
    b = q & LOW;
    x = (p >> 32) ^ y ^ k1;
    y = p & LOW;
    k0 = (k0 + 0x9E3779B9u) & LOW;
    k1 = (k1 + 0xBB67AE85u) & LOW;
  }
  Stream found = {(a << 32) | b, (x << 32) | y | 1}; /* the state zero would stay zero forever */
  return found;
}

static inline uint64_t next_word(Stream *s) {
  uint64_t a = s->a, b = s->b, word = a + b;
  b ^= a;
  s->a = ((a << 24) | (a >> 40)) ^ b ^ (b << 16);
  s->b = (b << 37) | (b >> 27);
  return word;
}

/* A double in [0, 1) from the upper 53 bits; it never rounds up to 1. */
static inline double as_unit(uint64_t word) { return (double)(word >> 11) * (1.0 / 9007199254740992.0); }

/* Words of the stream of a start and a lane: (start, lane, key, words); the first two are its state. */
LOOP(stream_words, "nnwU") {
  NEED(c->a[2].n == 2 && c->a[3].n >= 2)
  Stream s = stream_of((uint64_t)c->a[0].i, (uint64_t)c->a[1].i, c->a[2].w);
  c->a[3].u[0] = s.a;
  c->a[3].u[1] = s.b;
  for (int64_t k = 2; k < c->a[3].n; k++) c->a[3].u[k] = next_word(&s);
}

/* ------------------------------------------------------------------------------------------ random walks */
/* One step reads one record of 16 bytes: the target node of the entry, and where the row of that node begins. The
degree of that node is in the last mantissa bits of the weight (`mask`): below degree 16 the weight keeps 48 bits. A
single-precision weight is hardly faster, and records of 24 bytes are slower. */
typedef struct {
  uint32_t target, row;
  double weight; /* the factor by which a step along the entry multiplies the load */
} Edge;

static inline uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}

typedef struct { /* a matrix packed for walks, and when walks end */
  const Edge *edges;
  const uint64_t *rows, *shares, *go_on; /* length k continues to k + 1 if 32 random bits are below go_on[k] */
  const double *deposit;
  uint64_t mask;
} Table;

typedef struct { /* accumulators of one start; all but the lists are zero between starts */
  double *batch;   /* sums of the batch */
  uint8_t *seen;   /* 1 where the batch has a deposit */
  uint64_t *listed; /* the nodes of the batch in order of the first deposit */
} Batch;

typedef struct {
  uint64_t row, degree, length; /* where the row of its node begins */
  double load;
} Walker;

enum { MOST_COUPLED = 16 }; /* twice the usual degree */

/* An entry of a row by the upper half of a word: uniformly, or by bisection of the shares. */
static inline uint64_t choose(const uint64_t *shares, uint64_t row, uint64_t degree, uint64_t word) {
  if (!shares) return row + (((word >> 32) * degree) >> 32);
  uint64_t low = row, high = row + degree - 1;
  while (low < high) {
    uint64_t middle = (low + high) >> 1;
    if ((word >> 32) < shares[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Add to a node and list it if it is new. There is no branch, because it could not be predicted. */
static inline uint64_t deposit_at(Batch s, uint64_t node, double value, uint64_t n_listed) {
  s.batch[node] += value;
  s.listed[n_listed] = node;
  n_listed += 1u - s.seen[node];
  s.seen[node] = 1;
  return n_listed;
}

static inline uint64_t step(Table t, Batch s, uint64_t entry, Walker *w, uint64_t n_listed) {
  Edge edge = t.edges[entry];
  w->row = edge.row;
  w->degree = bits_of(edge.weight) & t.mask;
  w->load *= edge.weight;
  w->length++;
  return deposit_at(s, edge.target, w->load * t.deposit[w->length], n_listed);
}

/* Take a step, or return 1 if the walk ends. */
static inline int go_on(const Table t, const Batch s, Walker *w, Stream *stream, uint64_t *n_listed) {
  uint64_t word = next_word(stream);
  if ((word & LOW) >= t.go_on[w->length] || w->degree == 0) return 1;
  *n_listed = step(t, s, choose(t.shares, w->row, w->degree, word), w, *n_listed);
  return 0;
}

/* Independent walks by two walkers in turn: one computes while the other waits for memory. When a walk ends, its
walker starts the next one. Adds steps; returns the number of listed nodes. */
static inline uint64_t walk_two(const Table t, const Batch s, uint64_t start, int64_t n_walks, Stream *streams,
                                uint64_t n_listed, int64_t *n_steps) {
  const Walker home = {t.rows[start], t.rows[start + 1] - t.rows[start], 0, 1.0};
  Stream p = streams[0], q = streams[1];
  Walker a = home, b = home;
  int64_t waiting = n_walks - 2, steps = 0;
  int a_ended = 0;
  while (waiting >= 0) {
    if (go_on(t, s, &a, &p, &n_listed)) {
      steps += (int64_t)a.length;
      if ((a_ended = waiting == 0)) break;
      waiting--;
      a = home;
    }
    if (go_on(t, s, &b, &q, &n_listed)) {
      steps += (int64_t)b.length;
      if (waiting == 0) break;
      waiting--;
      b = home;
    }
  }
  if (a_ended) { /* b replaces a */
    Stream swap = p;
    a = b;
    p = q;
    q = swap;
  }
  while (!go_on(t, s, &a, &p, &n_listed)) continue;
  streams[0] = p;
  streams[1] = q;
  *n_steps += steps + (int64_t)a.length;
  return n_listed;
}

/* Choose the entries again, without replacement among the walkers on a node, in blocks of its degree. */
static void choose_apart(const Walker *walkers, const int *live, int n_live, uint64_t *entries, Stream *stream) {
  int order[MOST_COUPLED], first = 0;
  for (int i = 0; i < n_live; i++) { /* by the begin of the row, which identifies a node; stable */
    int p = i;
    for (; p > 0 && walkers[order[p - 1]].row > walkers[live[i]].row; p--) order[p] = order[p - 1];
    order[p] = live[i];
  }
  for (int i = 0; i < n_live; i++) {
    const Walker *w = &walkers[order[i]];
    if (w->row != walkers[order[first]].row || (uint64_t)(i - first) == w->degree) first = i;
    for (int taken = 1; taken;) { /* draw until the entry is free */
      uint64_t entry = choose(NULL, w->row, w->degree, next_word(stream));
      taken = 0;
      for (int k = first; k < i; k++) taken |= entries[order[k]] == entry;
      entries[order[i]] = entry;
    }
  }
}

/* Groups of coupled walkers in lock-step. In pairs, walkers survive by the numbers t and t + 1/2; in larger groups
those on a node choose different entries. All random words come from the first stream. */
static uint64_t walk_groups(Table t, Batch s, uint64_t start, int64_t n_walks, int size, Stream *streams,
                            uint64_t n_listed, int64_t *n_steps) {
  const Walker home = {t.rows[start], t.rows[start + 1] - t.rows[start], 0, 1.0};
  Walker walkers[MOST_COUPLED];
  uint64_t entries[MOST_COUPLED];
  int live[MOST_COUPLED]; /* the walkers that have not ended, ascending, so that pairs stay adjacent */
  for (int64_t begun = 0; begun < n_walks; begun += size) {
    int n_live = (int)least(size, n_walks - begun);
    for (int w = 0; w < n_live; w++) {
      walkers[w] = home;
      live[w] = w;
    }
    for (uint64_t length = 0; n_live > 0; length++) {
      int kept = 0, before = -1;
      uint64_t ticket = 0;
      for (int i = 0; i < n_live; i++) {
        int w = live[i], paired = size == 2 && w % 2 == 1 && before == w - 1;
        uint64_t word = next_word(streams);
        ticket = (paired ? ticket + 0x80000000u : word) & LOW;
        before = w;
        if (ticket < t.go_on[length] && walkers[w].degree > 0) {
          entries[w] = choose(t.shares, walkers[w].row, walkers[w].degree, word);
          live[kept++] = w;
        }
      }
      n_live = kept;
      if (size > 2) choose_apart(walkers, live, n_live, entries, streams);
      *n_steps += n_live;
      for (int i = 0; i < n_live; i++) n_listed = step(t, s, entries[live[i]], &walkers[live[i]], n_listed);
    }
  }
  return n_listed;
}

/* Room for one more row of results: counts, nodes and one or two numbers for each node. */
static int extend_row(Call *c, int64_t n, int64_t **nodes, double **first, double **second) {
  int64_t *count = extend(c, 0, 1, sizeof *count);
  *nodes = extend(c, 1, n, sizeof **nodes);
  *first = extend(c, 2, n, sizeof **first);
  if (second) *second = extend(c, 3, n, sizeof **second);
  c->n_results = second ? 4 : 3;
  if (!c->no_memory) *count = n;
  return !c->no_memory;
}

/* Estimates of rows of sum_k f_k W^k by walks, in batches of the given sizes, each of whole groups.
(edges, rows, shares, mask, deposit, go_on, sizes, key, starts, group) -> n_steps, counts, nodes, sums, variances. */
LOOP(run_walks, "euundulwln") {
  Argument *a = c->a;
  int64_t n = a[1].n - 1, n_batches = a[6].n, n_walks = 0, size = a[9].i;
  Table t = {a[0].start, a[1].u, a[2].n ? a[2].u : NULL, a[5].u, a[4].d, (uint64_t)a[3].i};
  const Table uniform = {t.edges, t.rows, NULL, t.go_on, t.deposit, t.mask};
  NEED(ascending(&a[1], a[0].n) && a[4].n > 0 && a[5].n == a[4].n && t.go_on[a[5].n - 1] == 0 && a[7].n == 2 && in_range(&a[8], n))
  NEED((size == 1 || size == 2 || size == MOST_COUPLED) && (!t.shares || a[2].n == a[0].n))
  Batch s = {zeros(c, n, 8), zeros(c, n, 1), zeros(c, n + 1, 8)};
  double *moments = zeros(c, 2 * n, 8); /* sums over batches of the sums, and of their squares over the batch size */
  uint8_t *known = zeros(c, n, 1);      /* 1 where the start has a deposit */
  int64_t *touched = zeros(c, n + 1, 8), *other = zeros(c, n, 8);
  if (c->no_memory) return;
  for (int64_t b = 0; b < n_batches; b++) n_walks += a[6].l[b];
  double share = 1.0 / (double)n_walks, scale = n_batches > 1 ? share / (double)(n_batches - 1) : NAN;
  c->n_results = 4;
  for (int64_t k = 0; k < a[8].n; k++) {
    uint64_t start = (uint64_t)a[8].l[k];
    Stream streams[2] = {stream_of(start, 0, a[7].w), stream_of(start, 1, a[7].w)};
    int64_t n_touched = 0;
    for (int64_t b = 0; b < n_batches; b++) {
      int64_t walks = a[6].l[b];
      uint64_t n_listed = deposit_at(s, start, (double)walks * t.deposit[0], 0);
      if (size == 1 && t.shares) /* one copy of the loop for each choice: it needs all registers */
        n_listed = walk_two(t, s, start, walks, streams, n_listed, &c->number);
      else if (size == 1)
        n_listed = walk_two(uniform, s, start, walks, streams, n_listed, &c->number);
      else
        n_listed = walk_groups(t, s, start, walks, (int)size, streams, n_listed, &c->number);
      double weight = 1.0 / (double)walks;
      for (uint64_t i = 0; i < n_listed; i++) {
        uint64_t node = s.listed[i];
        double value = s.batch[node];
        moments[2 * node] += value;
        moments[2 * node + 1] += value * value * weight;
        s.batch[node] = 0.0;
        s.seen[node] = 0;
        touched[n_touched] = (int64_t)node;
        n_touched += 1 - known[node];
        known[node] = 1;
      }
    }
    if (n_touched < n / 16) {
      sort_nodes(touched, n_touched, other);
    } else { /* many nodes are touched, so a scan of all is faster */
      int64_t position = 0;
      for (int64_t v = 0; v < n; v++) {
        touched[position] = v;
        position += known[v];
      }
    }
    int64_t *nodes;
    double *sums, *variances;
    if (!extend_row(c, n_touched, &nodes, &sums, &variances)) return;
    /* With batch sums S_b of n_b walks, the mean of sum_b S_b^2 / n_b - (sum_b S_b)^2 / n is (n_batches - 1) times the
    variance of one walk for any sizes; a batch that never reached the node has S_b = 0. */
    for (int64_t i = 0; i < n_touched; i++) {
      int64_t v = touched[i];
      double total = moments[2 * v];
      nodes[i] = v;
      sums[i] = total * share;
      variances[i] = larger(moments[2 * v + 1] - total * total * share, 0.0) * scale;
      moments[2 * v] = moments[2 * v + 1] = 0.0;
      known[v] = 0;
    }
  }
}

/* ---------------------------------------------------------------------------------------- counted walkers */
typedef struct {
  int64_t *counts, *nodes; /* walkers at each node, and the occupied nodes in the order they were reached */
} Crowd;

/* Thin the walkers to `ratio` of their number and move them; returns the number of nodes reached.

The thinning is one systematic sample over the occupied nodes in order. The number of survivors is off by less than
one at every node and in total. The offsets of the nodes advance by the golden ratio from node to node. Each is
uniform, so each split is unbiased. A constant offset would send the single walkers of all nodes in the same direction,
and sums over many nodes would be up to four times less accurate; independent offsets are 5 to 15 per cent worse. */
static int64_t move_crowd(Matrix m, double ratio, double phase, double offset, Crowd from, Crowd to, int64_t n_occupied,
                          int64_t *n_steps) {
  int64_t n_before = 0, n_kept = 0, n_reached = 0;
  for (int64_t q = 0; q < n_occupied; q++) {
    int64_t v = from.nodes[q];
    n_before += from.counts[v];
    /* n_before * ratio + phase may round up to the next integer, but no node may keep more than it has. */
    int64_t kept = least((int64_t)((double)n_before * ratio + phase) - n_kept, from.counts[v]);
    from.counts[v] = 0;
    n_kept += kept;
    int64_t begin = at(m.ends, v), end = at(m.ends, v + 1), n_placed = 0;
    if (kept == 0 || begin == end || m.values[end - 1] == 0.0) continue;
    offset += 0.6180339887498949; /* (sqrt(5) - 1) / 2 */
    offset -= floor(offset);
    *n_steps += kept;
    for (int64_t e = begin; e < end; e++) {
      /* The walkers that go to the neighbours up to this one; all of them at the last, where P sums to 1. */
      int64_t upper = least((int64_t)((double)kept * m.values[e] + offset), kept);
      if (upper > n_placed) {
        int64_t w = at(m.columns, e);
        if (to.counts[w] == 0) to.nodes[n_reached++] = w;
        to.counts[w] += upper - n_placed;
        n_placed = upper;
      }
    }
  }
  return n_reached;
}

/* Estimates of rows of sum_k f_k W^k by counted walkers: the plain mean of batches of nearly equal size.
(indptr, indices, cumulative, roots, deposit, go_on, n_walkers, n_batches, key, starts)
-> n_steps, counts, nodes, sums, variances. */
LOOP(count_walkers, "iidddunnwl") {
  Argument *a = c->a;
  TAKE_MATRIX(m, 0, 0, a[0].n - 1);
  const double *roots = a[3].d, *deposit = a[4].d;
  int64_t n = m.n, n_walkers = a[6].i, n_batches = least(a[7].i, n_walkers), lengths = a[4].n;
  NEED(a[3].n == n && a[5].n == lengths && n_batches >= 1 && a[8].n == 2 && in_range(&a[9], n))
  Crowd crowds[2] = {{zeros(c, n, 8), zeros(c, n, 8)}, {zeros(c, n, 8), zeros(c, n, 8)}};
  double *sums = zeros(c, n, 8), *moments = zeros(c, 2 * n, 8);
  uint8_t *seen = zeros(c, n, 1);
  int64_t *touched = zeros(c, n, 8), *other = zeros(c, n, 8);
  if (c->no_memory) return;
  c->n_results = 4;
  for (int64_t s = 0; s < a[9].n; s++) {
    int64_t start = a[9].l[s], n_touched = 0;
    for (int64_t b = 0; b < n_batches; b++) {
      Stream stream = stream_of((uint64_t)start, (uint64_t)b, a[8].w);
      int64_t walkers = n_walkers / n_batches + (b < n_walkers % n_batches), n_occupied = 1;
      crowds[0].counts[start] = walkers;
      crowds[0].nodes[0] = start;
      for (int64_t k = 0; k < lengths; k++) {
        Crowd here = crowds[k % 2];
        double weight = deposit[k] / (double)walkers;
        for (int64_t q = 0; deposit[k] != 0.0 && q < n_occupied; q++) {
          int64_t v = here.nodes[q];
          if (!seen[v]) {
            seen[v] = 1;
            touched[n_touched++] = v;
          }
          sums[v] += (double)here.counts[v] * weight * (roots[start] / roots[v]);
        }
        double phase = as_unit(next_word(&stream)), offset = as_unit(next_word(&stream));
        double ratio = (double)a[5].u[k] / 4294967296.0;
        n_occupied = move_crowd(m, ratio, phase, offset, here, crowds[1 - k % 2], n_occupied, &c->number);
      }
      Crowd left = crowds[lengths % 2]; /* walkers that have not ended, if the last share is not 0 */
      for (int64_t q = 0; q < n_occupied; q++) left.counts[left.nodes[q]] = 0;
      for (int64_t i = 0; i < n_touched; i++) {
        int64_t v = touched[i];
        moments[2 * v] += sums[v];
        moments[2 * v + 1] += sums[v] * sums[v];
        sums[v] = 0.0;
      }
    }
    sort_nodes(touched, n_touched, other);
    int64_t *nodes;
    double *means, *variances, count = (double)n_batches;
    if (!extend_row(c, n_touched, &nodes, &means, &variances)) return;
    for (int64_t i = 0; i < n_touched; i++) {
      int64_t v = touched[i];
      double mean = moments[2 * v] / count; /* the estimate of a batch that missed the node is zero */
      double spread = larger(moments[2 * v + 1] - count * (mean * mean), 0.0);
      nodes[i] = v;
      means[i] = mean;
      variances[i] = n_batches > 1 ? spread / (count * (count - 1.0)) : NAN;
      moments[2 * v] = moments[2 * v + 1] = 0.0;
      seen[v] = 0;
    }
  }
}

/* ---------------------------------------------------------------------------------------- sparse exact rows */
/* Rows of sum_k f_k W^k: x_0 = e_i, x_{k+1} = W x_k, and entries below a threshold are dropped at once. onward[k] is
the sum of |f_j| over j >= k. bounds[i] adds the norms of what is dropped at length k times onward[k].
(indptr, indices, values, coefficients, onward, threshold, starts, bounds) -> n_pushes, counts, nodes, values. */
LOOP(push_frontier, "iidddxlD") {
  Argument *a = c->a;
  TAKE_MATRIX(m, 0, 0, a[0].n - 1);
  int64_t n = m.n;
  NEED(a[4].n == a[3].n && a[7].n == a[6].n && in_range(&a[6], n))
  double *x[2] = {zeros(c, n, 8), zeros(c, n, 8)}, *sums = zeros(c, n, 8), threshold = a[5].x;
  int64_t *nodes[2] = {zeros(c, n, 8), zeros(c, n, 8)}, *touched = zeros(c, n, 8), *other = zeros(c, n, 8);
  uint8_t *reached = zeros(c, n, 1), *seen = zeros(c, n, 1);
  if (c->no_memory) return;
  c->n_results = 3;
  for (int64_t s = 0; s < a[6].n; s++) {
    int64_t n_active = 1, n_touched = 0;
    int side = 0;
    x[0][a[6].l[s]] = 1.0;
    nodes[0][0] = a[6].l[s];
    for (int64_t k = 0; k < a[3].n; k++) {
      if (k > 0) { /* x_{k+1} = W x_k, clearing x_k */
        double *here = x[side], *after = x[1 - side];
        int64_t *frontier = nodes[1 - side], n_reached = 0;
        for (int64_t q = 0; q < n_active; q++) {
          int64_t v = nodes[side][q], begin = at(m.ends, v), end = at(m.ends, v + 1);
          double value = here[v];
          here[v] = 0.0;
          for (int64_t e = begin; e < end; e++) {
            int64_t w = at(m.columns, e);
            if (!reached[w]) { /* a test for zero would fail if entries cancel */
              reached[w] = 1;
              frontier[n_reached++] = w;
            }
            after[w] += m.values[e] * value;
          }
          c->number += end - begin;
        }
        n_active = n_reached;
        side = 1 - side;
      }
      int64_t kept = 0;
      double squares = 0.0, coefficient = a[3].d[k];
      for (int64_t q = 0; q < n_active; q++) {
        int64_t v = nodes[side][q];
        double value = x[side][v];
        reached[v] = 0;
        if (fabs(value) < threshold) {
          squares += value * value;
          x[side][v] = 0.0;
          continue;
        }
        nodes[side][kept++] = v;
        if (!seen[v]) {
          seen[v] = 1;
          touched[n_touched++] = v;
        }
        sums[v] += coefficient * value;
      }
      n_active = kept;
      a[7].d[s] += sqrt(squares) * a[4].d[k];
    }
    for (int64_t q = 0; q < n_active; q++) x[side][nodes[side][q]] = 0.0;
    sort_nodes(touched, n_touched, other);
    int64_t *found;
    double *values;
    if (!extend_row(c, n_touched, &found, &values, NULL)) return;
    for (int64_t i = 0; i < n_touched; i++) {
      int64_t v = found[i] = touched[i];
      values[i] = sums[v];
      sums[v] = 0.0;
      seen[v] = 0;
    }
  }
}

/* ------------------------------------------------------------------------------------------ farthest points */
/* Boxes over a k-d tree's leaf order: a heap of nodes, leaves last, the root at position 1. A point can only come
closer to the selection if its box lies nearer to the new point than the farthest of its members lies to the selection,
so most boxes are skipped: O(log N) boxes per selected point. */
typedef struct {
  const double *points;
  const int64_t *order;
  int64_t n, d, leaf, width;
  double *corners;    /* (2 width, 2 d), smallest coordinates of the points, and of the points times -1 */
  double *far;        /* (2 width,), largest squared distance to the selection inside the box */
  int64_t *who;       /* (2 width,), the point at that distance */
  double *nearest;    /* (N,), squared distance of each point to the selection; -1 if it is selected */
} Pyramid;

static void build_pyramid(Call *c, Pyramid *p) {
  const int64_t side = 2 * p->d;
  p->width = 1;
  while (p->width < (p->n + p->leaf - 1) / p->leaf) p->width *= 2;
  p->corners = zeros(c, 2 * p->width * side, 8);
  p->far = zeros(c, 2 * p->width, 8);
  p->who = zeros(c, 2 * p->width, 8);
  p->nearest = zeros(c, p->n, 8);
  if (c->no_memory) return;
  for (int64_t k = 0; k < 2 * p->width * side; k++) p->corners[k] = INFINITY;
  for (int64_t k = 0; k < 2 * p->width; k++) p->far[k] = -1.0; /* boxes without points are never farthest */
  for (int64_t s = 0; s < p->n; s++) {
    int64_t node = p->width + s / p->leaf;
    const double *point = p->points + p->order[s] * p->d;
    p->nearest[s] = p->far[node] = INFINITY;
    for (int64_t k = 0; k < side; k++) {
      double *corner = p->corners + node * side + k;
      *corner = smaller(*corner, k < p->d ? point[k] : -point[k - p->d]);
    }
  }
  for (int64_t node = p->width - 1; node > 0; node--) {
    double *corner = p->corners + node * side, *left = p->corners + 2 * node * side, *right = left + side;
    for (int64_t k = 0; k < side; k++) corner[k] = smaller(left[k], right[k]);
    p->far[node] = larger(p->far[2 * node], p->far[2 * node + 1]);
  }
}

/* Lower the distances that a new point improves, and repair the pyramid above them. Ties go to the smaller index. */
static void select_point(const Pyramid *p, int64_t new) {
  const double *x = p->points + new * p->d;
  int64_t stack[192], top = 1; /* three entries a level; 64 levels hold any array */
  stack[0] = 1;
  while (top > 0) {
    int64_t node = stack[--top];
    if (node < 0) { /* on the way up: both children are done */
      int64_t left = -2 * node, right = left + 1;
      int take = p->far[left] > p->far[right] || (p->far[left] == p->far[right] && p->who[left] < p->who[right]);
      p->far[-node] = p->far[take ? left : right];
      p->who[-node] = p->who[take ? left : right];
      continue;
    }
    const double *corner = p->corners + 2 * node * p->d;
    double gap2 = 0.0;
    for (int64_t k = 0; k < p->d; k++) {
      double gap = larger(larger(corner[k] - x[k], x[k] + corner[p->d + k]), 0.0);
      gap2 += gap * gap;
    }
    if (gap2 > p->far[node]) continue;
    if (node < p->width) {
      stack[top++] = -node;
      stack[top++] = 2 * node;
      stack[top++] = 2 * node + 1;
      continue;
    }
    double best = -2.0;
    int64_t owner = -1, first = (node - p->width) * p->leaf;
    for (int64_t s = first; s < least(first + p->leaf, p->n); s++) {
      int64_t i = p->order[s];
      double distance = 0.0;
      for (int64_t k = 0; k < p->d; k++) {
        double gap = p->points[i * p->d + k] - x[k];
        distance += gap * gap;
      }
      p->nearest[i] = i == new ? -1.0 : smaller(p->nearest[i], distance); /* never again, even among equal points */
      if (p->nearest[i] > best || (p->nearest[i] == best && i < owner)) {
        best = p->nearest[i];
        owner = i;
      }
    }
    p->far[node] = best;
    p->who[node] = owner;
  }
}

/* Radius of a sweep: a share of the largest distance; negative if all remaining nodes coincide with chosen ones. */
static double sweep_radius(double farthest, double shrink) { return farthest > 0.0 ? shrink * farthest : -0.5; }

/* Farthest points of a cloud: n_exact exact ones, then greedy independent sets of shrinking radius.
(points, order, leaf, first, n_exact, visits, shrink, selected, radii); radii of exact ones only. */
LOOP(farthest_points, "dlnnnlxLD") {
  Argument *a = c->a;
  Pyramid p = {a[0].d, a[1].l, a[0].rows, a[0].columns, a[2].i, 0, NULL, NULL, NULL, NULL};
  int64_t wanted = a[7].n, n_exact = least(a[4].i, wanted), current = a[3].i, count = 0, *selected = a[7].l;
  NEED(p.n >= 1 && p.d >= 1 && p.leaf >= 1 && current >= 0 && current < p.n && wanted <= p.n && a[8].n >= n_exact)
  NEED(a[1].n == p.n && in_range(&a[1], p.n) && in_range(&a[5], p.n) && (wanted == n_exact || a[5].n == p.n))
  build_pyramid(c, &p);
  if (c->no_memory) return;
  for (double far = INFINITY; count < n_exact; current = p.who[1], far = p.far[1]) {
    a[8].d[count] = sqrt(far);
    selected[count++] = current;
    select_point(&p, current);
  }
  while (count < wanted) {
    double radius = sweep_radius(p.far[1], a[6].x * a[6].x); /* distances are squared here */
    const int64_t before = count;
    for (int64_t k = 0; k < a[5].n && count < wanted; k++) {
      if (p.nearest[a[5].l[k]] > radius) {
        selected[count++] = a[5].l[k];
        select_point(&p, a[5].l[k]);
      }
    }
    NEED(count > before) /* infinite distances */
  }
}

/* ------------------------------------------------------------------------------------------ paths along edges */
typedef struct {
  double *best;            /* lengths of the shortest paths so far */
  int64_t *queue, *reached; /* a ring of all nodes, since each waits at most once; the nodes that were infinitely far */
  uint8_t *waiting;
} Paths;

static Paths paths_of(Call *c, double *best, int64_t n) {
  Paths p = {best, zeros(c, n, 8), zeros(c, n, 8), zeros(c, n, 1)};
  return p;
}

/* Lower the lengths that paths from a source improve, up to a limit, by corrected labels; returns the number of reached
nodes, the source first. A first-in first-out queue visits some nodes again, but needs no heap: on the balls of a heat
step it takes a third of the time of Dijkstra's algorithm. The lengths are the same, to the bit. */
static int64_t shorten(Matrix m, Paths p, int64_t source, double limit) {
  int64_t found = 1, head = 0, tail = 1 % m.n, size = 1;
  p.best[source] = 0.0;
  p.reached[0] = p.queue[0] = source;
  for (; size > 0; size--) {
    int64_t v = p.queue[head];
    head = head + 1 == m.n ? 0 : head + 1;
    p.waiting[v] = 0;
    for (int64_t e = at(m.ends, v); e < at(m.ends, v + 1); e++) {
      double length = p.best[v] + m.values[e];
      int64_t w = at(m.columns, e);
      if (length <= limit && length < p.best[w]) {
        if (p.best[w] == INFINITY) p.reached[found++] = w;
        p.best[w] = length;
        if (!p.waiting[w]) {
          p.waiting[w] = 1;
          p.queue[tail] = w;
          tail = tail + 1 == m.n ? 0 : tail + 1;
          size++;
        }
      }
    }
  }
  return found;
}

static void choose_node(Matrix m, Paths p, int64_t node) {
  shorten(m, p, node, INFINITY);
  p.best[node] = -1.0;
}

/* The seeds, then farthest nodes along the edges up to n_exact, then greedy independent sets of shrinking radius.
`nearest` is infinite, -1 for nodes that must not be chosen; it becomes the distance to the selection.
(indptr, indices, lengths, nearest, seeds, n_exact, visits, shrink, selected). */
LOOP(farthest_along_edges, "iidDlnlxL") {
  Argument *a = c->a;
  TAKE_MATRIX(m, 0, 0, a[0].n - 1);
  double *nearest = a[3].d;
  int64_t wanted = a[8].n, count = 0, *selected = a[8].l;
  NEED(a[3].n == m.n && a[6].n == m.n && a[4].n <= wanted && in_range(&a[4], m.n) && in_range(&a[6], m.n))
  Paths paths = paths_of(c, nearest, m.n);
  if (c->no_memory) return;
  for (; count < a[4].n; count++) choose_node(m, paths, selected[count] = a[4].l[count]);
  while (count < wanted) {
    int64_t farthest = 0, before = count;
    for (int64_t v = 1; v < m.n; v++)
      if (nearest[v] > nearest[farthest]) farthest = v;
    double radius = sweep_radius(nearest[farthest], a[7].x);
    if (count < a[5].i && nearest[farthest] != -1.0)
      choose_node(m, paths, selected[count++] = farthest);
    else
      for (int64_t k = 0; k < m.n && count < wanted; k++)
        if (nearest[a[6].l[k]] > radius) choose_node(m, paths, selected[count++] = a[6].l[k]);
    NEED(count > before) /* no node is left */
  }
}

/* All nodes within `limit` of each source along the edges, the source first.
(indptr, indices, lengths, sources, limit) -> 0, counts, nodes, distances. */
LOOP(balls_along_edges, "iidlx") {
  Argument *a = c->a;
  TAKE_MATRIX(m, 0, 0, a[0].n - 1);
  NEED(in_range(&a[3], m.n))
  Paths paths = paths_of(c, zeros(c, m.n, 8), m.n);
  if (c->no_memory) return;
  for (int64_t v = 0; v < m.n; v++) paths.best[v] = INFINITY;
  c->n_results = 3;
  for (int64_t s = 0; s < a[3].n; s++) {
    int64_t found = shorten(m, paths, a[3].l[s], a[4].x), *nodes;
    double *distances;
    if (!extend_row(c, found, &nodes, &distances, NULL)) return;
    for (int64_t k = 0; k < found; k++) {
      nodes[k] = paths.reached[k];
      distances[k] = paths.best[nodes[k]];
      paths.best[nodes[k]] = INFINITY;
    }
  }
}

/* -------------------------------------------------------------------------------------- neighbours in cells */
typedef struct { /* nodes sorted by cell; those of a row of cells are contiguous */
  const double *points;      /* (N, 3) */
  const int64_t *nodes, *keys; /* (N,), keys ascending */
  const double *origin;      /* (3,) */
  const int64_t *shape;      /* (3,), number of cells along each axis */
  double size;
  int64_t n;
} Cells;

typedef struct { /* nodes near a query, in two growing results of the call */
  int64_t n, *columns;
  double *squares;
} Near;

/* Cells from six arguments. */
static const char *cells_of(const Argument *a, int64_t axes, Cells *cells) {
  Cells found = {a[0].d, a[1].l, a[2].l, a[3].d, a[4].l, a[5].x, a[1].n};
  *cells = found;
  if (axes > 3 || a[0].n != 3 * found.n || a[2].n != found.n || a[3].n != 3 || a[4].n != 3) return "cells of three axes";
  return NULL;
}

/* The nodes within a cell's size of a query; none without memory. */
static Near collect(Call *c, const double *query, int64_t axes, const Cells *cells) {
  int64_t cell[3] = {0, 0, 0}, ranges[9][2], n_rows = 0, room = 0;
  double spot[3] = {0.0, 0.0, 0.0}, limit = cells->size * cells->size;
  for (int64_t k = 0; k < axes; k++) {
    /* Far outside the box no cell is near; a floor of huge numbers would overflow. */
    double offset = (query[k] - cells->origin[k]) / cells->size;
    cell[k] = (int64_t)floor(smaller(larger(offset, -2.0), (double)cells->shape[k] + 1.0));
    spot[k] = query[k];
  }
  int64_t low = cell[2] > 0 ? cell[2] - 1 : 0, high = least(cell[2] + 1, cells->shape[2] - 1);
  for (int64_t i = cell[0] - 1; i <= cell[0] + 1; i++) {
    for (int64_t j = cell[1] - 1; j <= cell[1] + 1; j++) {
      if (i < 0 || j < 0 || i >= cells->shape[0] || j >= cells->shape[1] || low > high) continue;
      int64_t row = (i * cells->shape[1] + j) * cells->shape[2], begin = 0, above = cells->n;
      while (begin < above) {
        int64_t middle = (begin + above) / 2;
        if (cells->keys[middle] < row + low)
          begin = middle + 1;
        else
          above = middle;
      }
      int64_t end = begin;
      while (end < cells->n && cells->keys[end] <= row + high) end++;
      ranges[n_rows][0] = begin;
      ranges[n_rows++][1] = end;
      room += end - begin;
    }
  }
  c->results[0].size = c->results[1].size = 0;
  Near near = {0, extend(c, 0, room, 8), extend(c, 1, room, 8)};
  for (int64_t r = 0; r < n_rows && !c->no_memory; r++) {
    for (int64_t p = ranges[r][0]; p < ranges[r][1]; p++) {
      const double *point = cells->points + 3 * p;
      double x = spot[0] - point[0], y = spot[1] - point[1], z = spot[2] - point[2];
      double square = x * x + y * y + z * z;
      if (square <= limit) {
        near.columns[near.n] = cells->nodes[p];
        near.squares[near.n++] = square;
      }
    }
  }
  return near;
}

/* Nodes within a cell's size of each query in the span; only their numbers if `columns` is empty. found[i] is where
the list of query i begins, and afterwards where it ends: (queries, cells, found, columns, distances, begin, end). */
LOOP(list_neighbors, "ddlldlxLLDnn") {
  Argument *a = c->a;
  Cells cells;
  int64_t axes = a[0].columns, *begin = a[7].l, room = a[8].n;
  if ((c->refused = cells_of(&a[1], axes, &cells))) return;
  NEED(a[7].n == a[0].rows && a[9].n == room && a[10].i >= 0 && a[11].i <= a[0].rows)
  for (int64_t i = a[10].i; i < a[11].i && !c->no_memory; i++) {
    Near near = collect(c, a[0].d + i * axes, axes, &cells);
    NEED(room == 0 || (begin[i] >= 0 && begin[i] + near.n <= room))
    for (int64_t k = 0; room > 0 && k < near.n; k++) {
      a[8].l[begin[i] + k] = near.columns[k];
      a[9].d[begin[i] + k] = sqrt(near.squares[k]);
    }
    begin[i] += near.n;
  }
}

/* ------------------------------------------------------------------------------------------------ heat steps */
enum { DIMS = 8 }; /* at most, of a curved space; clouds have at most three */

/* The exponent of a step times s2: its arc is longer than its chord by a third of the squared normal part. Curvature
spreads or gathers heat by Ric(v, v) s2 / 12, the first term of the parametrix of the heat kernel. */
static double bent_square(const double *end, const double *start, const double *frame, const double *ricci, int64_t r,
                          int64_t dim, double square, double s2) {
  double along[DIMS], tangential = 0.0, bent = 0.0;
  for (int64_t a = 0; a < dim; a++) {
    along[a] = 0.0;
    for (int64_t k = 0; k < r; k++) along[a] += (end[k] - start[k]) * frame[k * dim + a];
    tangential += along[a] * along[a];
  }
  for (int64_t a = 0; a < dim; a++)
    for (int64_t b = 0; b < dim; b++) bent += along[a] * ricci[a * dim + b] * along[b];
  double normal = larger(square - tangential, 0.0);
  return square + smaller(normal / 3, square / 2) - s2 / 12 * bent * exp(-normal / s2);
}

/* Turn squared chords of pairs into exponents of the heat kernel, in place, with the frames of nodes at[row]:
(z, points, rows, columns, at, frames, ricci, s2, squares, begin, end). */
LOOP(bend_squares, "ddlllddxDnn") {
  Argument *a = c->a;
  int64_t r = a[0].columns, dim = a[5].deep;
  NEED(a[1].columns == r && a[5].columns == r && a[6].n == a[5].rows * dim * dim && a[4].n == a[0].rows)
  NEED(a[2].n == a[8].n && a[3].n == a[8].n && a[9].i >= 0 && a[10].i <= a[8].n && dim <= DIMS)
  for (int64_t p = a[9].i; p < a[10].i; p++) {
    int64_t row = a[2].l[p], k = a[4].l[row];
    a[8].d[p] = bent_square(a[1].d + a[3].l[p] * r, a[0].d + row * r, a[5].d + k * r * dim, a[6].d + k * dim * dim, r,
                            dim, a[8].d[p], a[7].x);
  }
}

/* Turn squared lengths into weights of a heat step, in place; returns their sum. Relative to the nearest node: a query
off the surface takes the same step, without underflow. */
static double weigh(double *squares, int64_t n, const int64_t *columns, const double *factors, double bandwidth) {
  double nearest = INFINITY, total = 0.0;
  for (int64_t p = 0; p < n; p++) nearest = smaller(nearest, squares[p]);
  for (int64_t p = 0; p < n; p++) {
    squares[p] = exp((nearest - squares[p]) / bandwidth) * factors[columns[p]];
    total += squares[p];
  }
  return total;
}

/* Affinities of queries to the nodes they step to: the mean volume of these nodes times the share of each.
(indptr, columns, factors, weights, bandwidth, values); the values are squared lengths of steps before. */
LOOP(heat_steps, "llddxD") {
  Argument *a = c->a;
  const int64_t *columns = a[1].l, n = a[0].n - 1;
  const double *weights = a[3].d;
  double *out = a[5].d;
  NEED(ascending(&a[0], a[1].n) && a[1].n == a[5].n && a[3].n == a[2].n && in_range(&a[1], a[2].n))
  for (int64_t i = 0; i < n; i++) {
    int64_t begin = a[0].l[i], end = a[0].l[i + 1];
    double total = weigh(out + begin, end - begin, columns + begin, a[2].d, a[4].x), weighted = 0.0, scale = 0.0;
    for (int64_t p = begin; p < end; p++) weighted += out[p] * weights[columns[p]];
    double square = total * total;
    if (0 < square && square < INFINITY && 0 < weighted && weighted < INFINITY) {
      scale = weighted / square;
    } else if (total > 0) { /* squares of the volumes overflow or underflow; no step to nodes without volume */
      for (int64_t p = begin; p < end; p++) scale += out[p] / total * weights[columns[p]];
      scale /= total;
    }
    for (int64_t p = begin; p < end; p++) out[p] *= scale;
  }
}

enum { BLOCK = 8 }; /* two registers of four doubles */

static inline void add_block(double *restrict row, const double *restrict values, double share) {
  for (int k = 0; k < BLOCK; k++) row[k] += share * values[k];
}

/* out[i] = one heat step from query i times a table in blocks, without forming the matrix of steps. Consecutive visits
are close to each other, so rows of the table are still in the cache.
(queries, visits, cells, points, node_of, factors, frames, ricci, bandwidth, ends, starts, values, order, out, begin,
end): nodes and images with their node and factor, frames and curvature of nodes, and the table. */
WIDE static void heat_rows(Call *c, const Cells *cells, double *row) {
  Argument *a = c->a;
  int64_t axes = a[0].columns, r = a[8].columns, dim = a[11].deep, m = a[17].n;
  const double *points = a[8].d, *frames = a[11].d, *ricci = a[12].d, bandwidth = a[13].x;
  const int64_t *node_of = a[9].l, *order = a[17].l;
  const uint64_t *ends = a[14].u;
  for (int64_t v = a[19].i; v < a[20].i; v++) {
    int64_t i = a[1].l[v];
    NEED(i >= 0 && i < a[0].rows)
    const double *query = a[0].d + i * axes;
    Near near = collect(c, query, axes, cells);
    int64_t nearest = 0;
    if (c->no_memory) return;
    if (a[11].n > 0 && near.n > 0) { /* with the frame of the nearest node */
      for (int64_t p = 0; p < near.n; p++)
        if (near.squares[p] < near.squares[nearest]) nearest = p;
      int64_t k = node_of[near.columns[nearest]];
      for (int64_t p = 0; p < near.n; p++)
        near.squares[p] = bent_square(points + near.columns[p] * r, query, frames + k * r * dim, ricci + k * dim * dim,
                                       r, dim, near.squares[p], bandwidth);
    }
    double total = weigh(near.squares, near.n, near.columns, a[10].d, bandwidth);
    memset(row, 0, (size_t)((m + BLOCK - 1) / BLOCK * BLOCK) * sizeof *row);
    for (int64_t p = 0; total > 0 && p < near.n; p++) {
      int64_t node = node_of[near.columns[p]];
      double share = near.squares[p] / total;
      for (uint64_t q = ends[node]; q < ends[node + 1]; q++) add_block(row + a[15].w[q], a[16].d + BLOCK * q, share);
    }
    for (int64_t k = 0; k < m; k++) a[18].d[i * m + order[k]] = row[k];
  }
}

LOOP(heat_step_rows, "dldlldlxdldddxuwdlDnn") {
  Argument *a = c->a;
  int64_t m = a[17].n, n_blocks = a[15].n;
  Cells cells;
  if ((c->refused = cells_of(&a[2], a[0].columns, &cells))) return;
  NEED(a[8].columns == a[0].columns && a[9].n == a[8].rows && a[10].n == a[8].rows && a[8].rows == cells.n)
  NEED(ascending(&a[14], n_blocks) && a[16].n == BLOCK * n_blocks && in_range(&a[9], a[14].n - 1))
  NEED(a[11].n == 0 || (a[11].columns == a[8].columns && a[12].n == a[11].rows * a[11].deep * a[11].deep))
  NEED(a[11].n == 0 || a[11].deep <= DIMS)
  NEED(a[18].n == a[0].rows * m && in_range(&a[17], m) && a[19].i >= 0 && a[20].i <= a[1].n)
  double *row = zeros(c, (m + BLOCK - 1) / BLOCK * BLOCK, 8);
  if (row) heat_rows(c, &cells, row);
}

/* ------------------------------------------------------------------------------------- the surface of a cloud */
/* Mean of the places of a query on the patches around it, in the coordinates of the cloud. The weight of the last of
these patches is zero, so that it may change without a jump. Beyond `largest` bandwidths a patch is no longer bent.
(inside, near, distances, means, frames, bends, widths, largest, origin, axes, out, begin, end). */
LOOP(blend_patches, "dldddddxddDnn") {
  Argument *a = c->a;
  int64_t r = a[3].columns, dim = a[4].deep, n_terms = a[5].columns, k = a[1].columns, d = a[8].n;
  const double *means = a[3].d, *frames = a[4].d, *bends = a[5].d, *widths = a[6].d, largest = a[7].x;
  NEED(a[0].columns == r && a[1].rows == a[0].rows && a[2].n == a[1].n && k > 0 && a[9].rows == d && a[9].columns == r)
  NEED(a[4].columns == r && a[4].rows == a[3].rows && a[5].rows == a[3].rows && a[5].deep == r && a[6].n == a[3].rows)
  NEED(n_terms == (dim + 1) * (dim + 2) / 2 && a[10].n == a[0].rows * d && a[11].i >= 0 && a[12].i <= a[0].rows)
  double *place = zeros(c, r, 8), *terms = zeros(c, n_terms, 8), *along = zeros(c, dim, 8);
  if (c->no_memory) return;
  terms[0] = 1.0;
  for (int64_t i = a[11].i; i < a[12].i; i++) {
    const double *query = a[0].d + i * r, *distances = a[2].d + i * k;
    double nearest = distances[0] * distances[0], room = distances[k - 1] * distances[k - 1] - nearest, total = 0.0;
    memset(place, 0, (size_t)r * sizeof *place);
    for (int64_t p = 0; p < k; p++) {
      double left = room > 0 ? 1.0 - (distances[p] * distances[p] - nearest) / room : 1.0, share = left * left;
      int64_t j = a[1].l[i * k + p], n = 1 + dim;
      if (share == 0.0) continue;
      NEED(j >= 0 && j < a[3].rows)
      const double *mean = means + j * r, *frame = frames + j * r * dim, *bend = bends + j * n_terms * r;
      total += share;
      memset(along, 0, (size_t)dim * sizeof *along);
      for (int64_t q = 0; q < r; q++)
        for (int64_t s = 0; s < dim; s++) along[s] += frame[q * dim + s] * (query[q] - mean[q]);
      for (int64_t s = 0; s < dim; s++) terms[1 + s] = smaller(larger(along[s] / widths[j], -largest), largest);
      for (int64_t s = 0; s < dim; s++)
        for (int64_t t = s; t < dim; t++) terms[n++] = terms[1 + s] * terms[1 + t];
      for (int64_t q = 0; q < r; q++) {
        double spot = mean[q];
        for (int64_t s = 0; s < dim; s++) spot += frame[q * dim + s] * along[s];
        for (int64_t t = 0; t < n_terms; t++) spot += bend[t * r + q] * terms[t];
        place[q] += share * spot;
      }
    }
    for (int64_t q = 0; q < d; q++) {
      double sum = a[8].d[q];
      for (int64_t s = 0; s < r; s++) sum += a[9].d[q * r + s] * place[s] / total;
      a[10].d[i * d + q] = sum;
    }
  }
}

/* -------------------------------------------------------------------------------------------------- module */
#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    METHOD(times_columns), METHOD(step_columns), METHOD(sum_along_rows), METHOD(add_product), 
    METHOD(stream_words), METHOD(run_walks), METHOD(count_walkers), METHOD(push_frontier), 
    METHOD(farthest_points), METHOD(farthest_along_edges), METHOD(balls_along_edges), METHOD(list_neighbors), 
    METHOD(bend_squares), METHOD(heat_steps), METHOD(heat_step_rows), METHOD(blend_patches),
    {NULL, NULL, 0, NULL},
};

static int add_constants(PyObject *module) {
  int failed = PyModule_AddIntConstant(module, "BLOCK", BLOCK);
  return failed ? failed : PyModule_AddIntConstant(module, "MOST_COUPLED", MOST_COUPLED);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_constants}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", "Compiled loops.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
