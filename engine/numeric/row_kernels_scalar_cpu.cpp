// The build's baseline instructions.
#include "engine/base/isa.h"
#include "engine/numeric/format_traits.h"
#include "engine/numeric/row_kernels.h"

#define PARE_TARGET

namespace pare {
namespace {
#include "engine/numeric/row_loops.inc"
}  // namespace

const RowKernels& row_kernels_scalar() {
  static const RowKernels kernels = make_row_kernels();
  return kernels;
}

const RowKernels& row_kernels() {
  if (isa() >= Isa::kAvx512) return row_kernels_avx512();
  return isa() >= Isa::kAvx2 ? row_kernels_avx2() : row_kernels_scalar();
}

}  // namespace pare
