// The operators of TensorRT's ONNX parser (domain "trt", graphsurgeon/forms/tensorrt_forms.h) as standard
// ones.
#include <map>

#include "engine/ir/block_scales.h"
#include "graphsurgeon/onnx/raise/raise_microsoft.h"
#include "graphsurgeon/onnx/raise/raise_tensorrt.h"

namespace pare {
namespace {

bool plain(Raiser&, Node& node, const char* op, DType codes) {
  node.domain.clear();
  node.op = op;
  if (codes != DType::kUndefined) node.attrs["output_dtype"] = static_cast<std::int64_t>(codes);
  return true;
}

bool raise_fp8_quantize(Raiser& r, Node& node) { return plain(r, node, "QuantizeLinear", DType::kE4M3FN); }
bool raise_int4_quantize(Raiser& r, Node& node) { return plain(r, node, "QuantizeLinear", DType::kI4); }
bool raise_dequantize(Raiser& r, Node& node) { return plain(r, node, "DequantizeLinear", DType::kUndefined); }

// The steps of write_block_quantize, the last of which write what the node wrote.
class RaiseWriter final : public OpWriter {
 public:
  RaiseWriter(Steps& steps, ValueId codes, ValueId scales) : s_(steps), codes_(codes), scales_(scales) {}

  ValueId node(const char* what, const char* op, std::vector<ValueId> in, DType, const Shape&,
               const Attributes& attrs) override {
    const std::string role = what;
    const bool scales = role == "scale_QuantizeLinear" || role == "scale";
    const ValueId out = role == "QuantizeLinear" ? codes_ : scales ? scales_ : ValueId::kNone;
    if (out == ValueId::kNone) return s_.make(what, op, std::move(in), attrs);
    s_.last(op, std::move(in), attrs, {out});
    return out;
  }
  ValueId constant(const char* what, Tensor tensor) override {
    return s_.raiser().constant(s_.node(), what, std::move(tensor));
  }

 private:
  Steps& s_;
  ValueId codes_, scales_;
};

bool dynamic_quantize(Raiser& r, Node& node, DType codes, DType scales, std::int64_t block) {
  Steps s(r, node);
  if (!s.wants(1)) s.refuse("no output of scales");
  if (scales == DType::kE4M3FN && node.attr("scale_type", std::int64_t{17}) != 17)
    s.refuse("scales of another type than float8e4m3fn");
  const Shape shape = s.value(s.need(0)).shape;
  BlockScales blocks{codes, scales, node.attr("axis", std::int64_t{-1}),
                     node.attr("block_size", std::int64_t{block})};
  if (blocks.block < 1) s.refuse("block_size 0");
  r.graph().value(node.out[1]).dtype = scales;  // uint8 in a file of MXFP8
  RaiseWriter writer(s, node.out[0], node.out[1]);
  write_block_quantize(writer, s.need(0), shape, scales == DType::kE4M3FN ? s.need(1) : ValueId::kNone,
                       blocks);
  return false;
}

bool raise_fp4_dynamic(Raiser& r, Node& node) {
  return dynamic_quantize(r, node, DType::kE2M1, DType::kE4M3FN, 16);
}
bool raise_mxfp8_dynamic(Raiser& r, Node& node) {
  return dynamic_quantize(r, node, DType::kE4M3FN, DType::kE8M0, 32);
}

// Its scales are uint8: constants are seen as powers of two, others have been written as such.
bool raise_mxfp8_dequantize(Raiser& r, Node& node) {
  Steps s(r, node);
  ValueId scales = s.need(1);
  if (r.graph().is_constant(scales)) {
    const Tensor bytes = r.graph().value(scales).constant;
    if (bytes.dtype() != DType::kU8) fail(ErrorCode::kBadFile, "scales of type {}", name(bytes.dtype()));
    const auto owner = std::make_shared<Tensor>(bytes);
    scales = r.constant(node, "scales", Tensor::share(DType::kE8M0, bytes.dims(), bytes.data(), owner));
  }
  Attributes attrs = node.attrs;
  if (attrs.count("block_size") == 0) attrs["block_size"] = std::int64_t{32};
  if (attrs.count("axis") == 0) attrs["axis"] = std::int64_t{-1};
  attrs["output_dtype"] = static_cast<std::int64_t>(DType::kF32);
  s.last("DequantizeLinear", {s.need(0), scales}, attrs);
  return false;
}

}  // namespace

RaiseRule tensorrt_rule(std::string_view domain, std::string_view op) {
  if (domain != "trt") return nullptr;
  static const std::map<std::string_view, RaiseRule> rules = {
      {"TRT_FP8QuantizeLinear", raise_fp8_quantize},        {"TRT_FP8DequantizeLinear", raise_dequantize},
      {"TRT_INT4QuantizeLinear", raise_int4_quantize},      {"TRT_INT4DequantizeLinear", raise_dequantize},
      {"TRT_FP4DynamicQuantize", raise_fp4_dynamic},        {"TRT_MXFP8DynamicQuantize", raise_mxfp8_dynamic},
      {"TRT_MXFP8DequantizeLinear", raise_mxfp8_dequantize}};
  const auto it = rules.find(op);
  return it == rules.end() ? nullptr : it->second;
}

}  // namespace pare
