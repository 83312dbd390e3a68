/*
 * Serves a megabyte of memory to initiators, until the end of standard input; then prints what they have done.
 *
 *     cc -o serve_memory serve_memory.c $(pkg-config --cflags --libs shotline)
 *     ./serve_memory                prints the address and the token for read_write
 *
 * Valid as C11 and as C++17.
 */
#include <inttypes.h>
#include <shotline.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH (1u << 20)

static void check(shotline_status status)
{
    if (status != SHOTLINE_OK) {
        fprintf(stderr, "%s: %s\n", shotline_status_name(status), shotline_last_error());
        exit(1);
    }
}

int main(void)
{
    shotline_memory memory;
    shotline_served_region region;
    shotline_target target;
    shotline_target_state state;
    char address[64], token[64];
    void *bytes;
    check(shotline_memory_allocate(LENGTH, NULL, &memory, &bytes));
    region.name = "data";
    region.rights = "atomic"; /* read, write and atomic operations */
    region.memory = memory;
    check(shotline_target_serve(&region, 1, NULL, &target));
    check(shotline_target_get_text(target, "address", address, sizeof address, NULL));
    check(shotline_target_get_text(target, "token", token, sizeof token, NULL));
    printf("%s %s\n", address, token);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    check(shotline_target_get_state(target, &state));
    printf("%" PRIu64 " initiators, %" PRIu64 " writes of %" PRIu64 " bytes, %" PRIu64 " reads of %" PRIu64
           " bytes, %" PRIu64 " atomic operations; the first byte is %u\n",
           state.welcomed, state.writes, state.bytes_in, state.reads, state.bytes_out, state.atomics,
           *(volatile unsigned char *)bytes);
    check(shotline_target_close(target));
    check(shotline_memory_free(memory));
    return 0;
}
