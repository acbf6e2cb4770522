#include "graphsurgeon/generated_inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "engine/base/error.h"
#include "graphsurgeon/passes/edit.h"

namespace pare {
namespace {

// --- sizes

// `place`: a size without a name is a symbol of its own.
std::string symbol_of(const Dim& dim, std::size_t input, std::size_t axis) {
  return dim.symbol.empty() ? fmt::format("?{}.{}", input, axis) : dim.symbol;
}

// Symbols that are the first size of some input are the batch.
std::map<std::string, bool> symbols(const Graph& graph) {
  std::map<std::string, bool> batch;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Shape& shape = graph.value(graph.inputs[i]).shape;
    for (std::size_t axis = 0; axis < shape.dims.size(); ++axis)
      if (!shape.dims[axis].known()) batch[symbol_of(shape.dims[axis], i, axis)] |= axis == 0;
  }
  return batch;
}

// With `sizes.first_only`, sizes beyond the batch of the first input that has any are `other`, those of
// further inputs (the state of a recurrent network) the batch.
Dims sizes_of(const Graph& graph, std::size_t input, const std::map<std::string, bool>& batch,
              const GeneratedSizes& sizes) {
  Dims dims;
  const Shape& shape = graph.value(graph.inputs[input]).shape;
  std::size_t first = 0;
  while (first < input && graph.value(graph.inputs[first]).shape.concrete()) ++first;
  const bool as_batch = sizes.first_only && first != input;
  for (std::size_t axis = 0; axis < shape.dims.size(); ++axis) {
    const Dim& dim = shape.dims[axis];
    dims.push_back(dim.known()                                         ? dim.value
                   : as_batch || batch.at(symbol_of(dim, input, axis)) ? sizes.batch
                                                                       : sizes.other);
  }
  return dims;
}

// --- inputs

// Integers below this, and from 0 on; 0 when the consumers say nothing.
std::int64_t index_limit(const Graph& graph, ValueId id, int depth = 0) {
  std::int64_t limit = 0;
  for (const Use& use : graph.users(id)) {
    const Node& node = graph.node(use.node);
    std::int64_t found = 0;
    if (node.is("Gather") && use.slot == 1) {
      const Shape& data = graph.value(node.in[0]).shape;
      std::int64_t axis = node.attr("axis", std::int64_t{0});
      if (axis < 0) axis += data.rank();
      if (axis >= 0 && axis < data.rank()) found = data.dims[static_cast<std::size_t>(axis)].value;
    } else if (depth < 4 &&
               (node.is("Cast") || node.is("Reshape") || node.is("Unsqueeze") || node.is("Identity")) &&
               use.slot == 0) {
      found = index_limit(graph, node.out.at(0), depth + 1);
    }
    if (found > 0) limit = limit == 0 ? found : std::min(limit, found);
  }
  return limit;
}

// A constant that an integer input is compared with (a sampling rate that chooses a branch), or 0.
std::int64_t compared_with(const Graph& graph, ValueId id, int depth = 0) {
  for (const Use& use : graph.users(id)) {
    const Node& node = graph.node(use.node);
    if (node.is("Equal") && graph.is_constant(node.in[use.slot == 0 ? 1 : 0])) {
      const Tensor& other = graph.value(node.in[use.slot == 0 ? 1 : 0]).constant;
      if (is_integer(other.dtype()) && bits(other.dtype()) >= 8 && other.size() > 0)
        return other.to_ints()[0];
    }
    if (depth < 4 && use.slot == 0 && (node.is("Cast") || node.is("Reshape") || node.is("Identity"))) {
      const std::int64_t found = compared_with(graph, node.out.at(0), depth + 1);
      if (found != 0) return found;
    }
  }
  return 0;
}

// An integer input that ends as 1 - x: a mask of what counts.
bool is_mask(const Graph& graph, ValueId id, int depth = 0) {
  for (const Use& use : graph.users(id)) {
    const Node& node = graph.node(use.node);
    if (node.is("Sub") && use.slot == 1 && graph.is_constant(node.in[0]) &&
        graph.value(node.in[0]).constant.size() == 1) {
      std::vector<double> one;
      if (to_doubles(graph.value(node.in[0]).constant, one) && one[0] == 1) return true;
    }
    const bool passes = node.is("Cast") || node.is("Reshape") || node.is("Unsqueeze") || node.is("Expand") ||
                        node.is("Slice");
    if (depth < 6 && use.slot == 0 && passes && is_mask(graph, node.out.at(0), depth + 1)) return true;
  }
  return false;
}

template <typename T, typename Draw>
void fill(Tensor& tensor, const Draw& draw) {
  T* out = tensor.mut<T>();
  for (std::int64_t i = 0; i < tensor.size(); ++i) out[i] = static_cast<T>(draw());
}

std::optional<Tensor> generate(const Graph& graph, ValueId id, const Dims& dims, std::mt19937_64& random) {
  const DType type = graph.value(id).dtype;
  if (graph.value(id).kind != ValueKind::kTensor) return std::nullopt;
  Tensor tensor = Tensor::allocate(type, dims);
  // Box-Muller by hand: std::normal_distribution differs between libraries.
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  const auto normal = [&] {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
  };
  const std::int64_t limit = is_mask(graph, id) ? 2 : index_limit(graph, id);
  const std::int64_t known = limit > 0 ? 0 : compared_with(graph, id);
  const auto whole = [&] {
    return known != 0  ? known
           : limit > 0 ? static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit))
                       : static_cast<std::int64_t>(1 + random() % 3);
  };
  switch (type) {
    case DType::kF32:
      fill<float>(tensor, normal);
      return tensor;
    case DType::kF64:
      fill<double>(tensor, normal);
      return tensor;
    case DType::kF16:
    case DType::kBF16: {
      std::vector<double> values(static_cast<std::size_t>(tensor.size()));
      for (double& v : values) v = normal();
      from_doubles(type, dims, values, tensor);
      return tensor;
    }
    case DType::kI64:
      fill<std::int64_t>(tensor, whole);
      return tensor;
    case DType::kI32:
      fill<std::int32_t>(tensor, whole);
      return tensor;
    case DType::kI16:
    case DType::kU16:
      fill<std::uint16_t>(tensor, whole);
      return tensor;
    case DType::kI8:
    case DType::kU8:
      fill<std::uint8_t>(tensor, whole);
      return tensor;
    case DType::kBool:
      fill<std::uint8_t>(tensor, [&] { return random() & 1; });
      return tensor;
    default:
      return std::nullopt;
  }
}

bool any_open(const Graph& graph, bool batch) {
  for (const auto& [symbol, is_batch] : symbols(graph))
    if (is_batch == batch) return true;
  return false;
}

}  // namespace

bool has_open_batch(const Graph& graph) { return any_open(graph, true); }

bool generate_inputs(const Graph& graph, const GeneratedSizes& sizes, std::uint64_t seed,
                     std::vector<Tensor>& inputs, std::string& why_not) {
  inputs.clear();
  const std::map<std::string, bool> batch = symbols(graph);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    auto tensor = generate(graph, graph.inputs[i], sizes_of(graph, i, batch, sizes), random);
    if (!tensor) {
      const Value& value = graph.value(graph.inputs[i]);
      why_not =
          fmt::format("no values are generated for input '{}' of type {}", value.name, name(value.dtype));
      return false;
    }
    inputs.push_back(std::move(*tensor));
  }
  return true;
}

GeneratedRun run_on_generated(Session& session, GeneratedSizes& sizes, std::uint64_t seed) {
  GeneratedRun run;
  std::vector<GeneratedSizes> tried = {sizes};
  const bool open = any_open(session.graph(), false);
  for (const bool first_only : {false, true})
    for (const std::int64_t other : {8, 16, 32, 64, 128, 224, 256, 320, 512, 576, 1, 2})
      if (open && (other != sizes.other || first_only != sizes.first_only))
        tried.push_back({sizes.batch, other, first_only});
  for (const GeneratedSizes& now : tried) {
    sizes = now;
    if (!generate_inputs(session.graph(), sizes, seed, run.inputs, run.why_not)) return run;
    try {
      run.outputs = session.run(run.inputs);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kInterrupted) throw;
      run.why_not = error.what();
      continue;
    }
    run.done = true;
    run.why_not.clear();
    return run;
  }
  return run;
}

}  // namespace pare
