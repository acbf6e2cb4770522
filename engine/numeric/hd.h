// What every format header needs: functions for host and device, and bits of a float.
//
// Format headers hold no containers, no fmt, no exceptions: CUDA files include them as they are. On the host
// their functions are always inlined, so a loop compiled for AVX2 or AVX-512 becomes vector code that
// computes, bit for bit, what the scalar call does: one definition, no copies.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PARE_HD __host__ __device__ __forceinline__ constexpr
#else
#define PARE_HD __attribute__((always_inline)) constexpr
#endif

namespace pare {

PARE_HD std::uint32_t float_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
PARE_HD float bits_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

}  // namespace pare
