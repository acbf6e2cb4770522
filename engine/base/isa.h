// Which vector instructions kernels may use. Chosen once at run time; `--isa` pins a lower class.
//
// Each class includes those before it. Kernels ask isa() (never the processor), so a test can walk
// every class this processor has by set_isa().
#pragma once

#include <string>

namespace pare {

enum class Isa {
  kScalar,      // plain C++ for the build's baseline
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // + AVX-512 F, BW, DQ, VL
  kAvx512Vnni,  // + AVX512_VNNI
  kAmx          // + AMX-TILE, AMX-INT8 (the kernel grants tile state)
};

Isa best_isa();                              // what this processor and its operating system allow
Isa isa();                                   // what kernels may use now; best_isa() until set_isa()
void set_isa(Isa isa);                       // Error kUsage above best_isa(). Before any session is made
const char* name(Isa isa);                   // "scalar", "avx2", "avx512", "avx512_vnni", "amx"
Isa isa_from_name(const std::string& text);  // Error kUsage with the list

// Results are the same in every bit within one class: scalar, avx2, avx512 (with or without VNNI), amx.
const char* reproducibility_class(Isa isa);

}  // namespace pare
