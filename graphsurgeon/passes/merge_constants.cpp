#include <cstring>
#include <string>
#include <unordered_map>

#include "graphsurgeon/passes/passes.h"

namespace pare {
namespace {

// Type, shape and a sample of the bytes: cheap for large weights; equal_bytes decides.
std::string key_of(const Tensor& tensor) {
  std::string key = std::to_string(static_cast<int>(tensor.dtype())) + to_string(tensor.dims());
  const auto bytes = tensor.byte_span();
  constexpr std::size_t kSample = 64, kPieces = 8;
  const auto add = [&](std::size_t at, std::size_t count) {
    key.append(reinterpret_cast<const char*>(bytes.data()) + at, count);
  };
  if (bytes.size() <= kSample * kPieces) {
    add(0, bytes.size());
  } else {
    for (std::size_t i = 0; i < kPieces; ++i) add((bytes.size() - kSample) / (kPieces - 1) * i, kSample);
  }
  return key;
}

int merge_constants(Graph& graph, PassContext& context) {
  constexpr std::size_t kMaxCandidates = 8;  // per key: a file full of near-equal tensors stays linear
  std::unordered_map<std::string, std::vector<ValueId>> seen;
  int count = 0;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    const Value& value = graph.value(id);
    if (!value.is_constant() || value.dtype == DType::kString || graph.users(id).empty()) continue;
    auto& candidates = seen[key_of(value.constant)];
    ValueId same = ValueId::kNone;
    for (const ValueId other : candidates)
      if (equal_bytes(graph.value(other).constant, value.constant)) same = other;
    if (same != ValueId::kNone && !graph.is_output(id)) {
      if (!context.may_change("constant '" + value.name + "'")) break;
      graph.replace_uses(id, same);
      ++count;
    } else if (candidates.size() < kMaxCandidates) {
      candidates.push_back(id);
    }
  }
  return count;
}

}  // namespace

const Pass kMergeConstants = {"merge_constants", "keep one of constants with equal type, shape and bytes",
                              merge_constants};

}  // namespace pare
