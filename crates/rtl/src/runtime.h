// What the models of all modules share.
#pragma once

#include "verilated.h"

#include <cstdint>

// Assertions of the RTL that failed on this thread.
extern thread_local uint64_t shotline_rtl_failed;

// Makes registers without a reset start with random values of this seed. Must be called before the model is created.
inline VerilatedContext* randomized(VerilatedContext& context, uint64_t seed) {
    context.randReset(2);
    context.randSeed(static_cast<int>(seed & 0x7FFFFFFF) | 1);
    return &context;
}
