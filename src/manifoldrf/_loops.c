/* The loops of manifoldrf that numpy and scipy do not have: plain functions on arrays, without the interpreter lock.

Every function is declared by LOOP(name, kinds), with one letter for each argument:

    d D   float64 array, read or written     i   int32 or int64 array, read
    l L   int64 array, read or written       w   uint32 array, read
    u U   uint64 array, read or written      e E array of Edge, read or written
    n     integer                            x   number

`call` checks kinds, contiguity and writability; a loop checks lengths (NEED). Indices inside arrays are checked by
the constructors of the objects that hold them. A loop returns None, or (integer, bytearray, ...) if it has results
whose sizes are not known before. Sums are in a fixed order and are never contracted to fused operations, so results
have the same bits on every machine and for any number of threads.
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
  const double *d;
  double *D;
  const int64_t *l;
  int64_t *L;
  const uint64_t *u;
  uint64_t *U;
  const uint32_t *w;
  int64_t i;
  double x;
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

static int is_format(const Py_buffer *view, const char *kinds, Py_ssize_t size) {
  const char *format = view->format ? view->format : "B";
  if (*format == '<' || *format == '=' || *format == '@') format++;
  return view->itemsize == size && strchr(kinds, format[0]) && format[0] && !format[1];
}

static int fits(const Py_buffer *view, char kind) {
  switch (kind) {
    case 'd': return is_format(view, "d", 8);
    case 'l': return is_format(view, "lq", 8);
    case 'u': return is_format(view, "LQ", 8);
    case 'w': return is_format(view, "IL", 4);
    case 'i': return is_format(view, "lq", 8) || is_format(view, "il", 4);
    default: return view->itemsize == 16; /* Edge */
  }
}

static int take(Argument *a, PyObject *given, char kind, Py_ssize_t position) {
  if (kind == 'n') {
    a->i = PyLong_AsLongLong(given);
    return PyErr_Occurred() == NULL;
  }
  if (kind == 'x') {
    a->x = PyFloat_AsDouble(given);
    return PyErr_Occurred() == NULL;
  }
  int written = kind < 'a';
  int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(given, &a->view, flags) < 0) {
    a->view.obj = NULL;
    return 0;
  }
  if (!fits(&a->view, (char)(kind | 32)) || (uintptr_t)a->view.buf % 4 || (a->view.itemsize > 4 && (uintptr_t)a->view.buf % 8)) {
    PyErr_Format(PyExc_TypeError, "argument %zd must be an aligned array of kind '%c', got format '%s'", position, kind,
                 a->view.format ? a->view.format : "B");
    return 0;
  }
  int dims = a->view.ndim;
  a->n = a->view.len / a->view.itemsize;
  a->rows = dims > 0 ? a->view.shape[0] : 1;
  a->columns = dims > 1 ? a->view.shape[1] : 1;
  a->deep = dims > 2 ? a->view.shape[2] : 1;
  a->d = a->D = a->view.buf;
  a->l = a->L = a->view.buf;
  a->u = a->U = a->view.buf;
  a->w = a->view.buf;
  if (a->view.itemsize == 8)
    a->index.wide = a->view.buf;
  else
    a->index.narrow = a->view.buf;
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
  times_rows(m, c->a[3].d, c->a[3].columns, c->a[4].D, begin, end);
}

/* previous <- scale M current - previous, total += weight previous, for the rows in the span. The new polynomial
overwrites the one before the last, whose entries are needed only here.
(indptr, indices, values, scale, current, previous, total, weight, begin, end). */
WIDE static void step_rows(Matrix m, const Argument *a, double *fresh) {
  double scale = a[3].x, weight = a[7].x;
  int64_t width = a[4].columns;
  for (int64_t v = a[8].i; v < a[9].i; v++) {
    double *previous = a[5].D + v * width, *total = a[6].D + v * width;
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

/* Rows of a product of two CSR matrices in the span, without entries of row i below limits[i]; sorted columns.
(left, right, limits, n_columns, begin, end) -> counts, columns, values. */
LOOP(multiply_rows, "iidiiddnnn") {
  int64_t n_columns = c->a[7].i, begin = c->a[8].i, end = c->a[9].i;
  TAKE_MATRIX(left, 0, begin, end);
  TAKE_MATRIX(right, 3, 0, c->a[3].n - 1);
  NEED(c->a[6].n == left.n)
  const double *limits = c->a[6].d;
  double *row = zeros(c, n_columns, sizeof *row);
  int64_t *seen = zeros(c, n_columns, sizeof *seen); /* 1 + the last row with an entry in each column */
  int64_t *touched = zeros(c, n_columns, sizeof *touched), *other = zeros(c, n_columns, sizeof *other);
  c->n_results = 3;
  for (int64_t i = begin; !c->no_memory && i < end; i++) {
    int64_t found = 0, kept = 0;
    for (int64_t p = at(left.ends, i); p < at(left.ends, i + 1); p++) {
      double weight = left.values[p];
      int64_t j = at(left.columns, p);
      for (int64_t q = at(right.ends, j); q < at(right.ends, j + 1); q++) {
        int64_t k = at(right.columns, q);
        if (seen[k] != i + 1) {
          seen[k] = i + 1;
          touched[found++] = k;
          row[k] = 0.0;
        }
        row[k] += weight * right.values[q];
      }
    }
    for (int64_t k = 0; k < found; k++)
      if (row[touched[k]] >= limits[i]) touched[kept++] = touched[k];
    sort_nodes(touched, kept, other);
    int64_t *count = extend(c, 0, 1, sizeof *count), *columns = extend(c, 1, kept, sizeof *columns);
    double *values = extend(c, 2, kept, sizeof *values);
    if (c->no_memory) return;
    *count = kept;
    for (int64_t k = 0; k < kept; k++) {
      columns[k] = touched[k];
      values[k] = row[touched[k]];
    }
  }
}

/* out[i] += rows[i] @ table for i in the span: (rows, table, out, begin, end). */
LOOP(add_product, "iidiidDnn") {
  int64_t begin = c->a[7].i, end = c->a[8].i;
  TAKE_MATRIX(rows, 0, begin, end);
  TAKE_MATRIX(table, 3, 0, c->a[3].n - 1);
  NEED(c->a[6].rows == rows.n)
  for (int64_t i = begin; i < end; i++) {
    double *target = c->a[6].D + i * c->a[6].columns;
    for (int64_t p = at(rows.ends, i); p < at(rows.ends, i + 1); p++) {
      double weight = rows.values[p];
      int64_t j = at(rows.columns, p);
      for (int64_t q = at(table.ends, j); q < at(table.ends, j + 1); q++)
        target[at(table.columns, q)] += weight * table.values[q];
    }
  }
}

/* -------------------------------------------------------------------------------------------------- module */
#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    METHOD(times_columns), METHOD(step_columns), METHOD(multiply_rows), METHOD(add_product), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_loops", "Compiled loops.", 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
