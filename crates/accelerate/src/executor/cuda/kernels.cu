// Steps of a five-point stencil, for a CUDA device. NVRTC compiles this file at run time; the tests compile it for the
// processor (sys/device.cpp). The results have the same bits as those of `shotline_compute::stencil`: the same operations in
// the same order, each rounded on its own. The intrinsic functions keep the compiler from joining a multiplication and an
// addition.

typedef unsigned long long u64;
typedef long long i64;

// Threads of a block.
#define THREADS 256
// Results of a block.
#define ROWS 32
#define COLUMNS 64
// Maximum number of steps of a launch: the block's halo. Two copies of the values below, of 8 bytes each, take 45 KiB of
// the 48 KiB of shared memory that every device has.
#define HALO 4
#define HEIGHT (ROWS + 2 * HALO)
#define WIDTH (COLUMNS + 2 * HALO)
// Columns whose squares are summed before they are added to the sum of the row, and partial sums of them.
#define SQUARES 256
#define LANES 8
#define GROUPS (THREADS / LANES)

// Bits of `flags`. A side that is no border of the matrix has a halo, or is followed by the opposite side.
#define FIXED 1
#define BORDER_ABOVE 2
#define BORDER_BELOW 4
#define BORDERS_AT_SIDES 8
#define WRAPS_ROWS 16
#define WRAPS_COLUMNS 32

// Arguments of both kernels: 64-bit words in the order of `Launch` in plan.rs.
struct Launch {
    u64 source; // address of row 0 of the tile, of the step before
    u64 source_stride; // bytes from one row to the next
    u64 result; // where row 0 of the tile would be in the result
    u64 result_stride;
    i64 rows; // of the tile
    i64 columns;
    i64 first; // rows first..end are computed
    i64 end;
    u64 flags;
    i64 steps; // 0 copies
    double center; // weights
    double neighbour;
    u64 squares; // address of the sum of row `first`
    u64 maxima; // address of the largest change of row `first`
};

static __device__ float add(float a, float b) { return __fadd_rn(a, b); }
static __device__ double add(double a, double b) { return __dadd_rn(a, b); }
static __device__ float multiply(float a, float b) { return __fmul_rn(a, b); }
static __device__ double multiply(double a, double b) { return __dmul_rn(a, b); }

// Returns an index of something that is repeated every `count` indices.
static __device__ i64 wrap(i64 index, i64 count) {
    if (index >= 0 && index < count) return index;
    index %= count;
    return index < 0 ? index + count : index;
}

template <typename T> static __device__ const T *source_row(const Launch &launch, i64 row) {
    return (const T *)(launch.source + (u64)row * launch.source_stride);
}

template <typename T> static __device__ T *result_row(const Launch &launch, i64 row) {
    return (T *)(launch.result + (u64)row * launch.result_stride);
}

// Places of a block's values in shared memory that are at least `margin` from its edges.
static __device__ bool is_inside(int y, int x, int margin) {
    return y >= margin && y < HEIGHT - margin && x >= margin && x < WIDTH - margin;
}

// Loads the values of a block, whose first row and column in the tile, with its halo, are `top` and `left`. Neighbouring
// threads load neighbouring columns. Values outside of the matrix are zero: no result depends on them.
template <typename T> static __device__ void load(const Launch &launch, T *values, i64 top, i64 left) {
    const int margin = HALO - (int)launch.steps;
    for (int place = threadIdx.x; place < HEIGHT * WIDTH; place += THREADS) {
        const int y = place / WIDTH, x = place % WIDTH;
        if (!is_inside(y, x, margin)) continue;
        i64 row = top + y, column = left + x;
        if (launch.flags & WRAPS_ROWS) row = wrap(row, launch.rows);
        if (launch.flags & WRAPS_COLUMNS) column = wrap(column, launch.columns);
        const bool exists = row >= 0 && row < launch.rows && column >= 0 && column < launch.columns;
        values[place] = exists ? source_row<T>(launch, row)[column] : (T)0;
    }
}

// Computes a step of the places that are at least `margin`, which is not 0, from the edges.
template <typename T>
static __device__ void advance(const Launch &launch, const T *from, T *to, int margin, i64 top, i64 left) {
    const T center = (T)launch.center, neighbour = (T)launch.neighbour;
    for (int place = threadIdx.x; place < HEIGHT * WIDTH; place += THREADS) {
        const int y = place / WIDTH, x = place % WIDTH;
        if (!is_inside(y, x, margin)) continue;
        const i64 row = top + y, column = left + x;
        const bool is_top = (launch.flags & BORDER_ABOVE) && row == 0;
        const bool is_bottom = (launch.flags & BORDER_BELOW) && row + 1 == launch.rows;
        const bool is_first = (launch.flags & BORDERS_AT_SIDES) && column == 0;
        const bool is_last = (launch.flags & BORDERS_AT_SIDES) && column + 1 == launch.columns;
        const T here = from[place];
        if ((launch.flags & FIXED) && (is_top || is_bottom || is_first || is_last)) {
            to[place] = here;
            continue;
        }
        // Nothing flows through a border: the value is its own neighbour.
        const T above = is_top ? here : from[place - WIDTH];
        const T below = is_bottom ? here : from[place + WIDTH];
        const T before = is_first ? here : from[place - 1];
        const T after = is_last ? here : from[place + 1];
        const T sum = add(add(above, below), add(before, after));
        to[place] = add(multiply(center, here), multiply(neighbour, sum));
    }
}

template <typename T> static __device__ void store(const Launch &launch, const T *values, i64 top, i64 left) {
    for (int place = threadIdx.x; place < ROWS * COLUMNS; place += THREADS) {
        const int y = HALO + place / COLUMNS, x = HALO + place % COLUMNS;
        const i64 row = top + y, column = left + x;
        if (row < launch.end && column < launch.columns) {
            result_row<T>(launch, row)[column] = values[y * WIDTH + x];
        }
    }
}

// Computes up to HALO steps. A block takes its values with their halo into shared memory, where the values that are still
// right become fewer with each step, until only the results are left.
template <typename T> static __device__ void compute_steps(const Launch &launch) {
    __shared__ T values[2][HEIGHT * WIDTH];
    const i64 across = (launch.columns + COLUMNS - 1) / COLUMNS;
    const i64 blocks = across * ((launch.end - launch.first + ROWS - 1) / ROWS);
    const int steps = (int)launch.steps;
    for (i64 block = blockIdx.x; block < blocks; block += gridDim.x) {
        const i64 top = launch.first + block / across * ROWS - HALO;
        const i64 left = block % across * COLUMNS - HALO;
        load<T>(launch, values[0], top, left);
        __syncthreads();
        for (int step = 1; step <= steps; step++) {
            advance<T>(launch, values[(step - 1) % 2], values[step % 2], HALO - steps + step, top, left);
            __syncthreads();
        }
        store<T>(launch, values[steps % 2], top, left);
        __syncthreads();
    }
}

// Returns the larger value, or NaN if one is NaN.
static __device__ double larger(double a, double b) { return b <= a || a != a ? a : b; }

// Sums the squares of the changes of each row, and finds the largest change. Each group of LANES threads sums the squares of
// SQUARES columns; one thread adds these sums in the order of the columns.
template <typename T> static __device__ void compare_rows(const Launch &launch) {
    __shared__ double sums[THREADS];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    for (i64 row = launch.first + blockIdx.x; row < launch.end; row += gridDim.x) {
        const T *before = source_row<T>(launch, row), *after = result_row<T>(launch, row);
        double total = 0, max = 0;
        for (i64 start = 0; start < launch.columns; start += GROUPS * SQUARES) {
            const i64 begin = start + group * SQUARES;
            const i64 end = begin + SQUARES < launch.columns ? begin + SQUARES : launch.columns;
            double sum = 0;
            for (i64 column = begin + lane; column < end; column += LANES) {
                const double change = add((double)after[column], -(double)before[column]);
                max = larger(max, fabs(change));
                sum = add(sum, multiply(change, change));
            }
            sums[threadIdx.x] = sum;
            __syncthreads();
            for (int other = 0; threadIdx.x == 0 && other < GROUPS; other++) {
                const double *of = sums + other * LANES;
                const double even = add(add(of[0], of[4]), add(of[2], of[6]));
                const double odd = add(add(of[1], of[5]), add(of[3], of[7]));
                if (start + other * SQUARES < launch.columns) total = add(total, add(even, odd));
            }
            __syncthreads();
        }
        sums[threadIdx.x] = max;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int other = 1; other < THREADS; other++) max = larger(max, sums[other]);
            ((double *)launch.squares)[row - launch.first] = total;
            ((double *)launch.maxima)[row - launch.first] = max;
        }
        __syncthreads();
    }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

KERNEL steps_f32(const Launch launch) { compute_steps<float>(launch); }
KERNEL steps_f64(const Launch launch) { compute_steps<double>(launch); }
KERNEL changes_f32(const Launch launch) { compare_rows<float>(launch); }
KERNEL changes_f64(const Launch launch) { compare_rows<double>(launch); }
