#include "graphsurgeon/self_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/passes/edit.h"

namespace pare {
namespace {

// --- sizes

struct Sizes {
  std::int64_t batch = 1;
  std::int64_t other = 8;
};

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

Dims sizes_of(const Graph& graph, std::size_t input, const std::map<std::string, bool>& batch,
              const Sizes& sizes) {
  Dims dims;
  const Shape& shape = graph.value(graph.inputs[input]).shape;
  for (std::size_t axis = 0; axis < shape.dims.size(); ++axis) {
    const Dim& dim = shape.dims[axis];
    dims.push_back(dim.known()                             ? dim.value
                   : batch.at(symbol_of(dim, input, axis)) ? sizes.batch
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

template <typename T, typename Draw>
void fill(Tensor& tensor, const Draw& draw) {
  T* out = tensor.mut<T>();
  for (std::int64_t i = 0; i < tensor.size(); ++i) out[i] = static_cast<T>(draw());
}

std::optional<Tensor> generate(const Graph& graph, ValueId id, const Dims& dims, std::mt19937_64& random) {
  const DType type = graph.value(id).dtype;
  Tensor tensor = Tensor::allocate(type, dims);
  // Box-Muller by hand: std::normal_distribution differs between libraries.
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  const auto normal = [&] {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
  };
  const std::int64_t limit = index_limit(graph, id);
  const auto whole = [&] {
    return limit > 0 ? static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit))
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

// --- comparison

struct Difference {
  double largest = 0;
  std::string failure;
};

Difference compare(const Tensor& a, const Tensor& b, const SelfCheckOptions& options) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims())
    return {INFINITY, fmt::format("{} {} became {} {}", name(a.dtype()), to_string(a.dims()), name(b.dtype()),
                                  to_string(b.dims()))};
  std::vector<double> x, y;
  if (!to_doubles(a, x) || !to_doubles(b, y))
    return equal_bytes(a, b) ? Difference{} : Difference{INFINITY, "elements changed"};
  double scale = 0;
  for (const double v : x)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  const double allowed = options.relative * scale + options.absolute;
  Difference result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double d = std::fabs(x[i] - y[i]);
    result.largest = std::isnan(d) ? INFINITY : std::max(result.largest, d);
    if (!(d <= allowed) && result.failure.empty())
      result.failure =
          fmt::format("element {} was {:.9g} and is {:.9g}; {:.3g} is allowed (1e-4 of the largest value)", i,
                      x[i], y[i], allowed);
  }
  return result;
}

class Check {
 public:
  Check(const Graph& first, const Graph& second, const SelfCheckOptions& options, ThreadPool& pool)
      : options_(options), batch_(symbols(first)) {
    SessionOptions session;
    session.pool = &pool;
    first_ = std::make_unique<Session>(std::make_shared<const Graph>(first), session);
    second_ = std::make_unique<Session>(std::make_shared<const Graph>(second), session);
  }

  SelfCheckReport run() {
    const bool any_batch =
        std::any_of(batch_.begin(), batch_.end(), [](const auto& entry) { return entry.second; });
    Sizes sizes;
    for (const std::int64_t batch : {1, 2}) {
      if (batch == 2 && (!any_batch || !report_.done)) break;
      sizes.batch = batch;
      if (!run_with(sizes)) break;
    }
    return std::move(report_);
  }

 private:
  // Sizes for what is neither known nor the batch: the last that ran comes first.
  bool run_with(Sizes& sizes) {
    const bool open =
        std::any_of(batch_.begin(), batch_.end(), [](const auto& entry) { return !entry.second; });
    std::vector<std::int64_t> tried = {sizes.other};
    for (const std::int64_t other : {8, 16, 32, 64, 128, 224, 256, 320, 512, 576, 1, 2})
      if (open && other != sizes.other) tried.push_back(other);
    for (const std::int64_t other : tried) {
      sizes.other = other;
      std::vector<Tensor> inputs;
      if (!make_inputs(sizes, inputs)) return false;
      std::vector<Tensor> expected;
      try {
        expected = first_->run(inputs);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kInternal) throw;
        report_.why_not = error.what();
        continue;
      }
      report_.done = true;
      report_.why_not.clear();
      return judge(expected, inputs);
    }
    return false;
  }

  bool make_inputs(const Sizes& sizes, std::vector<Tensor>& inputs) {
    const Graph& graph = first_->graph();
    std::mt19937_64 random(options_.seed);
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      auto tensor = generate(graph, graph.inputs[i], sizes_of(graph, i, batch_, sizes), random);
      if (!tensor) {
        report_.why_not =
            fmt::format("no values are generated for input '{}' of type {}",
                        graph.value(graph.inputs[i]).name, name(graph.value(graph.inputs[i]).dtype));
        return false;
      }
      inputs.push_back(std::move(*tensor));
    }
    return true;
  }

  bool judge(const std::vector<Tensor>& expected, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> got;
    try {
      got = second_->run(inputs);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      report_.passed = false;
      report_.failure = fmt::format("it does not run any more: {}", error.what());
      return false;
    }
    ++report_.runs;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Difference d = compare(expected[i], got[i], options_);
      const std::string& output = first_->graph().value(first_->graph().outputs[i]).name;
      if (d.largest > report_.max_abs_diff) {
        report_.max_abs_diff = d.largest;
        report_.worst_output = output;
      }
      if (d.failure.empty()) continue;
      report_.passed = false;
      report_.failure = fmt::format("output '{}': {}", output, d.failure);
      return false;
    }
    return true;
  }

  const SelfCheckOptions& options_;
  std::map<std::string, bool> batch_;
  std::unique_ptr<Session> first_, second_;
  SelfCheckReport report_;
};

}  // namespace

SelfCheckReport compare_on_generated(const Graph& first, const Graph& second, const SelfCheckOptions& options,
                                     ThreadPool& pool) {
  return Check(first, second, options, pool).run();
}

}  // namespace pare
