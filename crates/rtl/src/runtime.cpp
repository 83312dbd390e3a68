#include "runtime.h"

thread_local uint64_t shotline_rtl_failed = 0;

// Verilator reports a failed assertion only by this call.
void vl_stop(const char*, int, const char*) VL_MT_UNSAFE { shotline_rtl_failed++; }

extern "C" uint64_t shotline_rtl_failures(void) { return shotline_rtl_failed; }
