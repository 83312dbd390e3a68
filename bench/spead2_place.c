/* Placement callback of spead2's chunk receiver: one chunk per heap, in the order of their counters. */
#include <stddef.h>
#include <stdint.h>

/* The fields of spead2::recv::chunk_place_data up to those that are used. */
struct place {
    const uint8_t *packet;
    size_t packet_size;
    const int64_t *items; /* heap counter, heap length */
    int64_t chunk_id;
    size_t heap_index;
    size_t heap_offset;
};

enum { HEAP_BYTES = 1 << 20 };

void place(void *data, size_t bytes)
{
    struct place *place = data;
    if (bytes < sizeof *place || place->items[1] != HEAP_BYTES)
        return; /* heaps without data, such as stop heaps, have no chunk */
    place->chunk_id = place->items[0];
    place->heap_index = 0;
    place->heap_offset = 0;
}
