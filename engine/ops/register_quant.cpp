#include "engine/ops/integer/qcodes.h"
#include "engine/ops/integer/qconv.h"
#include "engine/ops/integer/qmatmul.h"
#include "engine/ops/integer/quantize_linear.h"
#include "engine/ops/register_cpu.h"
#include "engine/ops/registry.h"

namespace pare {

void register_quant(Registry& registry) {
  registry.add(qconv::depthwise_kernel());
  registry.add(qconv::winograd_kernel());
  registry.add(qconv::gemm_kernel());
  registry.add(qconv::ref_kernel());
  registry.add(qmatmul::gemm_kernel());
  registry.add(qmatmul::ref_kernel());
  registry.add(qcodes::lookup_kernel());
  registry.add(qcodes::lookup_ref_kernel());
  registry.add(qcodes::add_kernel());
  registry.add(qcodes::add_ref_kernel());
  registry.add(quantize_linear::quantize_rows_kernel());
  registry.add(quantize_linear::quantize_narrow_kernel());
  registry.add(quantize_linear::quantize_ref_kernel());
  registry.add(quantize_linear::dequantize_rows_kernel());
  registry.add(quantize_linear::dequantize_narrow_kernel());
  registry.add(quantize_linear::dequantize_ref_kernel());
  registry.add(quantize_linear::fake_quant_rows_kernel());
  registry.add(quantize_linear::fake_quant_ref_kernel());
}

}  // namespace pare
