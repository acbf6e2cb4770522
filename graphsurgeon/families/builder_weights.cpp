// Weights of the checkpoint as constants of the graph, and what reads them.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/numeric/convert.h"
#include "graphsurgeon/checkpoint/finite.h"
#include "graphsurgeon/families/builder.h"

namespace pare {
namespace {

// to[c][r] = float(from[r][c]), in blocks that fit the cache.
Tensor transposed_floats(const Tensor& from) {
  const std::int64_t rows = from.dims()[0], columns = from.dims()[1], step = 64;
  Tensor to = Tensor::allocate(DType::kF32, {columns, rows});
  auto* out = to.mut<float>();
  const auto* bytes = from.as<std::byte>();
  std::vector<float> block(static_cast<std::size_t>(step * step));
  for (std::int64_t r = 0; r < rows; r += step)
    for (std::int64_t c = 0; c < columns; c += step) {
      const std::int64_t m = std::min(step, rows - r), n = std::min(step, columns - c);
      for (std::int64_t i = 0; i < m; ++i)
        decode(from.dtype(), bytes + ((r + i) * columns + c) * bits(from.dtype()) / 8,
               block.data() + i * step, n);
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i)
          out[(c + j) * rows + r + i] = block[static_cast<std::size_t>(i * step + j)];
    }
  return to;
}

Tensor plain_floats(const Tensor& from, float offset) {
  if (from.dtype() == DType::kF32 && offset == 0) return from;
  Tensor to = Tensor::allocate(DType::kF32, from.dims());
  decode(from.dtype(), from.data(), to.mut<float>(), from.size());
  for (std::int64_t i = 0; i < to.size() && offset != 0; ++i) to.mut<float>()[i] += offset;
  return to;
}

}  // namespace

bool NetBuilder::has(const std::string& weight) const { return store_.find(weight) != nullptr; }

Tensor NetBuilder::stored(const std::string& weight, const Dims& dims) const {
  if (options_.needed != nullptr) {
    options_.needed->push_back(weight);
    return Tensor::share(DType::kF32, dims, nullptr, nullptr);  // views: nobody reads it
  }
  const WeightStore::Entry* entry = store_.find(weight);
  if (entry == nullptr)
    throw make_error(ErrorCode::kBadFile, "the model needs a weight '{}', and the checkpoint has none",
                     weight)
        .at(config_.where)
        .hint("are the weights those of this config.json?");
  if (entry->dims != dims)
    throw make_error(ErrorCode::kBadFile, "the weight '{}' is {}, and by the config it is {}", weight,
                     to_string(entry->dims), to_string(dims))
        .at(config_.where)
        .hint("are the weights those of this config.json?");
  if (options_.views && options_.dequantize && store_.coded(weight) != nullptr)
    return Tensor::share(DType::kF32, dims, nullptr, nullptr);  // its place alone, as builder.h says
  Tensor tensor = store_.get(weight);
  if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || bits(tensor.dtype()) > 32)
    throw make_error(ErrorCode::kUnsupported, "the weight '{}' is {}: no float of 16 or 32 bits", weight,
                     pare::name(tensor.dtype()))
        .at(config_.where)
        .hint("this checkpoint is quantized in a form that is not read yet");
  return tensor;
}

ValueId NetBuilder::floats(const std::string& weight, const Dims& dims, float offset) {
  if (const ValueId known = graph_.find_value(weight); known != ValueId::kNone && offset == 0) return known;
  Tensor values = plain_floats(stored(weight, dims), options_.needed != nullptr ? 0 : offset);
  if (options_.needed == nullptr) refuse_nonfinite(weight, values, config_.where);  // small: always
  return graph_.add_constant(weight, std::move(values));
}

// [ins, outs] in float32.
ValueId NetBuilder::matrix(const std::string& weight, std::int64_t ins, std::int64_t outs, bool in_first) {
  const Tensor tensor = stored(weight, in_first ? Dims{ins, outs} : Dims{outs, ins});
  if (!options_.views) {
    Tensor values = in_first ? plain_floats(tensor, 0) : transposed_floats(tensor);
    refuse_nonfinite(weight, values, config_.where);
    return graph_.add_constant(weight, std::move(values));
  }
  ValueId value = graph_.find_value(weight);
  if (value == ValueId::kNone) value = graph_.add_constant(weight, tensor);
  if (!in_first) value = op("Transpose", {value}, {{"perm", std::vector<std::int64_t>{1, 0}}}, weight + "_t");
  if (tensor.dtype() != DType::kF32)
    value = op("Cast", {value}, {{"to", static_cast<std::int64_t>(DType::kF32)}}, weight + "_f32");
  return value;
}

ValueId NetBuilder::blocks(const std::string& weight, const Dims& dims, const GgmlType*& type) {
  if (!options_.stepwise || options_.needed != nullptr) return ValueId::kNone;
  const WeightStore::Entry* entry = store_.find(weight);
  if (entry == nullptr || entry->dims != dims) return ValueId::kNone;  // stored() says it
  const Tensor rows = store_.blocks(weight, type);
  if (rows.empty()) return ValueId::kNone;
  const ValueId known = graph_.find_value(weight);
  return known != ValueId::kNone ? known : graph_.add_constant(weight, rows);
}

// x W^T, and what stands around it where W is codes.
ValueId NetBuilder::product(ValueId x, const std::string& module, const std::string& weight, std::int64_t ins,
                            std::int64_t outs, bool in_first) {
  const GgmlType* type = nullptr;
  if (const ValueId rows = in_first ? ValueId::kNone : blocks(weight, {outs, ins}, type);
      rows != ValueId::kNone) {
    const ValueId y = op("WMatMul", {x, rows}, {{"format", std::string(type->name)}}, module);
    graph_.node(graph_.producer(y)).domain = "pare";
    return y;
  }
  if (options_.needed != nullptr || options_.dequantize || store_.coded(weight) == nullptr)
    return op("MatMul", {x, matrix(weight, ins, outs, in_first)}, {}, module);
  const LinearFormat& format = *store_.coded(weight);
  if (format.outs != outs || format.ins != ins)
    throw make_error(ErrorCode::kBadFile, "the weight '{}' is {}x{}, and by the config it is {}x{}", weight,
                     format.outs, format.ins, outs, ins)
        .at(config_.where)
        .hint("are the weights those of this config.json?");
  const QuantizedLinear layer = store_.codes(weight);
  return op("MatMul", {quantized_input(x, layer, module), quantized_matrix(layer, weight)}, {}, module);
}

ValueId NetBuilder::linear(ValueId x, const std::string& module, std::int64_t ins, std::int64_t outs,
                           bool bias, bool in_first) {
  const ValueId y = product(x, module, module + ".weight", ins, outs, in_first);
  if (!bias) return y;
  return op("Add", {y, floats(module + ".bias", {outs})}, {}, module + ".add_bias");
}

ValueId NetBuilder::linear_with(ValueId x, const std::string& module, const std::string& weight,
                                std::int64_t ins, std::int64_t outs) {
  return product(x, module, weight, ins, outs, false);
}

// Rows are gathered as they are stored, so the table is never widened.
ValueId NetBuilder::embedding(ValueId ids, const std::string& module, std::int64_t rows,
                              std::int64_t columns) {
  const std::string weight = module + ".weight";
  const GgmlType* type = nullptr;
  if (const ValueId kept = blocks(weight, {rows, columns}, type); kept != ValueId::kNone) {
    const ValueId bytes = op("Gather", {kept, ids}, {{"axis", std::int64_t{0}}}, module);
    const ValueId x = op("DecodeBlocks", {bytes},
                         {{"format", std::string(type->name)},
                          {"block", std::int64_t{type->block}},
                          {"bytes", std::int64_t{type->bytes}}},
                         module + ".decode");
    graph_.node(graph_.producer(x)).domain = "pare";
    return x;
  }
  const Tensor table = stored(weight, {rows, columns});
  if (!options_.views) refuse_nonfinite(weight, table, config_.where);
  ValueId value = graph_.find_value(weight);
  if (value == ValueId::kNone) value = graph_.add_constant(weight, table);
  value = op("Gather", {value, ids}, {{"axis", std::int64_t{0}}}, module);
  if (table.dtype() != DType::kF32)
    value = op("Cast", {value}, {{"to", static_cast<std::int64_t>(DType::kF32)}}, module + ".cast");
  return value;
}

}  // namespace pare
