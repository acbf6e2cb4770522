#include "engine/ir/fallback.h"

#include "engine/base/error.h"
#include "engine/base/sha256.h"

namespace pare {
namespace {

struct AttributeWords {
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(float v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const Tensor& v) const {
    if (v.dtype() == DType::kString) return "strings" + to_string(v.dims());
    return name(v.dtype()) + to_string(v.dims()) + hex(sha256(v.byte_span()));
  }
  std::string operator()(const std::shared_ptr<Graph>&) const { return "graph"; }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    std::string text;
    for (const T& x : v) text += fmt::format("{},", x);
    return text;
  }
};

}  // namespace

std::string fallback_signature(const Node& node) {
  std::string text = node.domain + "." + node.op + "(";
  for (const ValueId in : node.in) text += in == ValueId::kNone ? '_' : 'x';
  text += ")(";
  for (const ValueId out : node.out) text += out == ValueId::kNone ? '_' : 'x';
  text += ")";
  for (const auto& [key, attribute] : node.attrs)
    text += fmt::format(" {}={}", key, std::visit(AttributeWords{}, attribute));
  return text;
}

bool has_valid_fallback(const Node& node) {
  return node.fallback != nullptr && node.fallback->name == fallback_signature(node);
}

}  // namespace pare
