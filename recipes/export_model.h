// The forms in which a quantized graph is written: --export, recipe key export.model.
//
//   qdq_onnx      QuantizeLinear and DequantizeLinear of ONNX
//   trt_onnx      with TensorRT's own operators where it has them (graphsurgeon/forms/tensorrt_forms.h)
//   matmul_nbits  products as com.microsoft MatMulNBits (graphsurgeon/forms/matmul_nbits.h); weights alone
//   qoperator     QLinearConv and its relatives (graphsurgeon/forms/qoperator.h); target onnxruntime, 8-bit
//   integers trt_cache     no model: the INT8 scales of activations as a TensorRT calibration cache
#pragma once

#include <string>
#include <vector>

#include "graphsurgeon/onnx/write.h"
#include "quant/audit.h"
#include "recipes/quantize/quantize_model.h"

namespace pare {

// Error kUnsupported or kUsage for a form that this build does not write, or that cannot hold the formats,
// before any work.
void check_export(const std::string& form, const quant::Spec& spec);
// The form that somebody means who writes "vllm", "awq" or a form misspelt; "" when there is none.
std::string export_meant(const std::string& word);

struct Exported {
  WriteReport written;             // of models
  std::vector<std::string> notes;  // what stays in the standard form, and why; a newer opset
  bool is_model = true;
};
Exported export_model(const QuantizeOutcome& outcome, const std::string& form, const std::string& path,
                      const WriteOptions& options);

// Reads the file back and compares it with the plan.
quant::AuditResult audit_export(const QuantizeOutcome& outcome, const std::string& form,
                                const std::string& path);

}  // namespace pare
