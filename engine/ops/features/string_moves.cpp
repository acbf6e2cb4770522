// Strings through kernels that move elements of four bytes, and through Equal: every different string becomes
// a number, the kernel runs on the numbers, and the result's numbers become strings again. 0 is the empty
// string, which is what Pad and the like fill in.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/features/strings.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

struct Numbered {
  std::vector<TensorView> in, out;

  explicit Numbered(const OpCall& call)
      : in(call.in.begin(), call.in.end()), out(call.out.begin(), call.out.end()) {
    for (auto* views : {&in, &out})
      for (TensorView& view : *views)
        if (view.dtype == DType::kString) view.dtype = DType::kI32, view.data = nullptr;
  }
};

// A kernel of the same operator that takes numbers in place of the strings and computes (no alias).
const Kernel* kernel_for(const OpCall& call, const Numbered& numbered) {
  OpCall inner = call;
  inner.in = numbered.in;
  inner.out = numbered.out;
  for (const Kernel* kernel : cpu_registry().candidates(call.node->domain, call.node->op, Backend::kCpu))
    if (kernel->alias < 0 && kernel->why_not(inner).empty()) return kernel;
  return nullptr;
}

std::string why_not(const OpCall& call) {
  const auto is_string = [](const TensorView& view) { return view.dtype == DType::kString; };
  if (std::none_of(call.in.begin(), call.in.end(), is_string)) return "no input is a string";
  return kernel_for(call, Numbered(call)) == nullptr ? "no kernel of the operator takes int32 here" : "";
}

void run(const OpCall& call) {
  Numbered numbered(call);
  const Kernel* const kernel = kernel_for(call, numbered);
  if (kernel == nullptr) fail(ErrorCode::kUnsupported, "{} of strings", call.node->op);
  std::vector<const std::string*> words = {nullptr};
  std::unordered_map<std::string_view, std::int32_t> numbers = {{std::string_view(), 0}};
  std::vector<Tensor> memory;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (call.in[i].dtype != DType::kString) continue;
    memory.push_back(Tensor::allocate(DType::kI32, call.in[i].dims));
    auto* const to = memory.back().mut<std::int32_t>();
    numbered.in[i].data = to;
    for (std::int64_t k = 0; k < call.in[i].size(); ++k) {
      const std::string& word = call.in[i].as<std::string>()[k];
      const auto found = numbers.emplace(word, static_cast<std::int32_t>(words.size()));
      if (found.second) words.push_back(&word);
      to[k] = found.first->second;
    }
  }
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    if (call.out[i].dtype != DType::kString) continue;
    memory.push_back(Tensor::allocate(DType::kI32, call.out[i].dims));
    numbered.out[i].data = memory.back().mut<std::int32_t>();
  }
  OpCall inner = call;
  inner.in = numbered.in;
  inner.out = numbered.out;
  const std::shared_ptr<const void> prepared = kernel->prepare == nullptr ? nullptr : kernel->prepare(inner);
  inner.prepared = prepared.get();
  kernel->run(inner);
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    if (call.out[i].dtype != DType::kString) continue;
    for (std::int64_t k = 0; k < call.out[i].size(); ++k) {
      const std::string* const word = words[static_cast<std::size_t>(numbered.out[i].as<std::int32_t>()[k])];
      call.out[i].mut<std::string>()[k] = word == nullptr ? std::string() : *word;
    }
  }
}

}  // namespace

void add_string_moves(Registry& registry) {
  Kernel kernel;
  for (const char* op : {"Transpose", "Slice", "Expand", "Tile", "Concat", "Split", "Pad", "DepthToSpace",
                         "SpaceToDepth", "Gather", "GatherElements", "GatherND", "ScatterElements",
                         "ScatterND", "Where", "OneHot", "ReverseSequence", "Equal"}) {
    kernel.op = op;
    kernel.name = kernel_name(op, "strings");
    kernel.why_not = why_not;
    kernel.run = run;
    registry.add(kernel);
  }
}

}  // namespace pare
