// Peers of bench/stencil.py: STREAM's triad and copy with streaming stores, and Jacobi steps in plain and in tiled loops.
//
// Build: gcc -O3 -march=native -fopenmp [-DREAL=double] peers.c
// Usage: peers triad|copy|plain|tiled ROWS COLUMNS STEPS REPEATS [TILE_ROWS TILE_COLUMNS]
// Prints the sum of some values after one repetition, then the seconds of each.
#define _GNU_SOURCE
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define PAGE (2L << 20)
#define LINE (64 / (long)sizeof(real))

static long rows, columns;
static const real center = (real)0.2, neighbour = (real)0.2;

static real initial(long row, long column) { return (real)((7 * row + 13 * column) % 64) / 64; }

static real *allocate(void) {
    const long bytes = (rows * columns * (long)sizeof(real) + PAGE - 1) & -PAGE;
    real *values = aligned_alloc(PAGE, bytes);
    if (!values) {
        perror("aligned_alloc");
        exit(1);
    }
    madvise(values, bytes, MADV_HUGEPAGE);  // as Shotline's memory
#pragma omp parallel for schedule(static)
    for (long row = 0; row < rows; row++)
        for (long column = 0; column < columns; column++)
            values[row * columns + column] = initial(row, column);
    return values;
}

// Stores a cache line past the cache.
static inline void stream_line(real *to, const real *line) {
#ifdef __AVX512F__
    _mm512_stream_si512((void *)to, _mm512_load_si512(line));
#else
    _mm256_stream_si256((void *)to, _mm256_load_si256((const void *)line));
    _mm256_stream_si256((void *)to + 32, _mm256_load_si256((const void *)line + 32));
#endif
}

static void triad(real *a, const real *b, const real *c) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows * columns / LINE * LINE; i += LINE) {
        real sum[LINE] __attribute__((aligned(64)));
        for (long j = 0; j < LINE; j++)
            sum[j] = b[i + j] + 3 * c[i + j];
        stream_line(a + i, sum);
    }
    _mm_sfence();
}

static void copy(real *a, const real *b) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < rows * columns / LINE * LINE; i += LINE)
        stream_line(a + i, b + i);
    _mm_sfence();
}

static inline void row_part(real *restrict to, const real *restrict from, long row, long first, long end) {
    const real *middle = from + row * columns, *above = middle - columns, *below = middle + columns;
    real *out = to + row * columns;
    for (long c = first; c < end; c++)
        out[c] = center * middle[c] + neighbour * ((above[c] + below[c]) + (middle[c - 1] + middle[c + 1]));
}

static void plain(real *a, real *b, int steps) {
    for (int step = 0; step < steps; step++) {
        real *from = step % 2 ? b : a, *to = step % 2 ? a : b;
#pragma omp parallel for schedule(static)
        for (long row = 1; row < rows - 1; row++)
            row_part(to, from, row, 1, columns - 1);
    }
}

// Parallelogram tiles of rows and columns, skewed by time, in a wavefront: what Pluto makes of these loops.
static void tiled(real *a, real *b, int steps, long tile_rows, long tile_columns) {
    const long down = (rows + steps + tile_rows - 1) / tile_rows;
    const long across = (columns + steps + tile_columns - 1) / tile_columns;
    for (long wave = 0; wave < down + across - 1; wave++) {
        const long first = MAX(0, wave - across + 1), last = MIN(wave, down - 1);
#pragma omp parallel for schedule(dynamic, 1)
        for (long tile = first; tile <= last; tile++) {
            const long at_row = tile * tile_rows, at_column = (wave - tile) * tile_columns;
            for (int step = 0; step < steps; step++) {
                real *from = step % 2 ? b : a, *to = step % 2 ? a : b;
                const long begin = MAX(1, at_row - step), end = MIN(rows - 1, at_row + tile_rows - step);
                const long left = MAX(1, at_column - step), right = MIN(columns - 1, at_column + tile_columns - step);
                for (long row = begin; row < end; row++)
                    row_part(to, from, row, left, right);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: peers triad|copy|plain|tiled ROWS COLUMNS STEPS REPEATS [TILE_ROWS TILE_COLUMNS]\n");
        return 2;
    }
    rows = atol(argv[2]), columns = atol(argv[3]);
    const int steps = atoi(argv[4]), repeats = atoi(argv[5]);
    const long tile_rows = argc > 7 ? atol(argv[6]) : 64, tile_columns = argc > 7 ? atol(argv[7]) : 1024;
    const int is_triad = !strcmp(argv[1], "triad"), is_plain = !strcmp(argv[1], "plain");
    const int is_copy = !strcmp(argv[1], "copy");
    real *a = allocate(), *b = allocate(), *c = is_triad ? allocate() : NULL;
    for (int repeat = 0; repeat < repeats; repeat++) {
        const double start = omp_get_wtime();
        if (is_triad)
            triad(a, b, c);
        else if (is_copy)
            copy(a, b);
        else if (is_plain)
            plain(a, b, steps);
        else
            tiled(a, b, steps, tile_rows, tile_columns);
        const double seconds = omp_get_wtime() - start;
        if (!repeat) {
            const real *now = steps % 2 && !is_triad && !is_copy ? b : a;
            printf("sum %.9f\n", (double)now[columns + 1] + (double)now[rows / 3 * columns + columns / 5] +
                                     (double)now[(rows - 2) * columns + columns - 2]);
        }
        printf("%.9f\n", seconds);
    }
    return 0;
}
