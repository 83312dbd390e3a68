// A CUDA device for the tests: the kernels compiled for the processor, driven through standard input and output.
//
// The threads of a block are coroutines, each of which runs until it waits for the others or ends. They take turns in
// ascending and in descending order, so that a missing __syncthreads changes results. Memory ends at a page that cannot be
// accessed.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, gridDim;
static void __syncthreads();

#include "../kernels.cu"

typedef void (*Kernel)(const Launch);
static const Kernel KERNELS[] = {steps_f32, steps_f64, changes_f32, changes_f64};
static const size_t STACK = 64 << 10;

static ucontext_t scheduler, coroutines[THREADS];
static bool has_ended[THREADS];
static Kernel kernel;
static Launch launch;

static void __syncthreads() { swapcontext(&coroutines[threadIdx.x], &scheduler); }

static void run_thread() {
    kernel(launch);
    has_ended[threadIdx.x] = true;
}

static void fail(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

static void run_block() {
    static std::vector<char> stacks(THREADS * STACK);
    for (unsigned thread = 0; thread < THREADS; thread++) {
        ucontext_t &coroutine = coroutines[thread];
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = &stacks[thread * STACK];
        coroutine.uc_stack.ss_size = STACK;
        coroutine.uc_link = &scheduler;
        makecontext(&coroutine, run_thread, 0);
        has_ended[thread] = false;
    }
    for (bool ascending = true; !has_ended[0]; ascending = !ascending) {
        for (unsigned turn = 0; turn < THREADS; turn++) {
            threadIdx.x = ascending ? turn : THREADS - 1 - turn;
            swapcontext(&scheduler, &coroutines[threadIdx.x]);
        }
        for (unsigned thread = 1; thread < THREADS; thread++) {
            if (has_ended[thread] != has_ended[0]) fail("some threads of a block wait for others that have ended");
        }
    }
}

static u64 allocate(u64 bytes) {
    const u64 page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    char *first = (char *)mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED || mprotect(first + pages, page, PROT_NONE)) fail("there is no memory");
    return (u64)first + pages - bytes;
}

static u64 take() {
    u64 word;
    if (fread(&word, sizeof word, 1, stdin) != 1) exit(0);
    return word;
}

int main() {
    for (;;) {
        const u64 command = take();
        if (command == 0) {
            const u64 address = allocate(take());
            fwrite(&address, sizeof address, 1, stdout);
        } else if (command == 1) {
            const u64 address = take(), bytes = take();
            if (fread((void *)address, 1, bytes, stdin) != bytes) fail("the bytes of a write are missing");
        } else if (command == 2) {
            const u64 address = take(), bytes = take();
            fwrite((const void *)address, 1, bytes, stdout);
        } else {
            kernel = KERNELS[take()];
            gridDim.x = take();
            if (take() != THREADS) fail("the kernels are for another number of threads");
            if (fread(&launch, sizeof launch, 1, stdin) != 1) fail("the arguments of a launch are missing");
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_block();
        }
        fflush(stdout);
    }
}
