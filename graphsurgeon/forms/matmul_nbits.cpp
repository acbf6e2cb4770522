#include "graphsurgeon/forms/matmul_nbits.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/numeric/pack.h"
#include "graphsurgeon/forms/qoperator_tools.h"

namespace pare {
namespace {

// The weight of one product, codes as unsigned numbers, one a byte: [n, k].
struct PackedWeight {
  std::int64_t n = 0, k = 0, block = 0, blocks = 0;
  int width = 4;
  std::vector<std::uint8_t> codes, zeros;  // [n, k], [n, blocks]
  std::vector<float> scales;               // [n, blocks]
};

std::int64_t next_power_of_two(std::int64_t n) {
  std::int64_t power = 16;
  while (power < n) power *= 2;
  return power;
}

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

class ToMatMulNBits {
 public:
  ToMatMulNBits(Graph& graph, int accuracy, QuantizedFormReport& report)
      : graph_(graph), accuracy_(accuracy), report_(report) {}

  void run() {
    for (const NodeId id : graph_.nodes()) {
      const Node& node = graph_.node(id);
      if (!node.is("MatMul") && !node.is("Gemm")) continue;
      const NodeId dq = graph_.producer(node.in[1]);
      if (dq == NodeId::kNone || !graph_.node(dq).is("DequantizeLinear")) continue;
      if (!graph_.is_constant(graph_.node(dq).in[0])) continue;
      const std::string op = node.op;
      PackedWeight weight;
      const std::string why = read(node, graph_.node(dq), weight);
      if (why.empty()) {
        write(id, graph_.node(dq), weight);
        ++report_.converted[op];
      } else {
        report_.left.push_back({node.name.empty() ? graph_.value(node.out[0]).name : node.name, why});
      }
    }
    remove_unread(graph_, {"DequantizeLinear"});
  }

 private:
  std::string read(const Node& node, const Node& dq, PackedWeight& w) const {
    const Tensor& codes = graph_.value(dq.in[0]).constant;
    const Dims& dims = codes.dims();
    if (dims.size() != 2) return "its weight is no matrix";
    const DType type = codes.dtype();
    w.width = bits(type);
    if (!is_integer(type) || w.width > 8) return fmt::format("codes of type {}", name(type));
    if (!graph_.is_constant(dq.in[1]) || graph_.value(dq.in[1]).dtype != DType::kF32)
      return "its scales are no float32 constants";
    const bool gemm = node.is("Gemm");
    if (gemm && (node.attr("transA", std::int64_t{0}) != 0 || node.attr("alpha", 1.0f) != 1.0f))
      return "it has transA or alpha";
    if (gemm && input(node, 2) != ValueId::kNone &&
        (node.attr("beta", 1.0f) != 1.0f || graph_.value(node.in[2]).shape.rank() != 1))
      return "its C is no row, or has beta";
    const bool rows = gemm && node.attr("transB", std::int64_t{0}) != 0;  // [n, k]
    w.n = dims[rows ? 0 : 1];
    w.k = dims[rows ? 1 : 0];
    const std::int64_t in = rows ? 1 : 0, asked = dq.attr("block_size", std::int64_t{0});
    std::int64_t axis = dq.attr("axis", std::int64_t{1});
    if (axis < 0) axis += 2;
    const Tensor& scales = graph_.value(dq.in[1]).constant;
    if (asked > 0 && axis != in) return "its blocks do not lie along the summed axis";
    if (asked == 0 && scales.size() != 1 && axis == in) return "it has a scale an input";
    const std::int64_t groups = asked == 0 ? 1 : (w.k + asked - 1) / asked;
    w.block = groups == 1 ? next_power_of_two(w.k) : asked;
    w.blocks = groups;
    if (!is_power_of_two(w.block) || w.block < 16)
      return fmt::format("blocks of {}: powers of two from 16 on are possible", asked);
    const Tensor zeros = dq.in.size() > 2 && dq.in[2] != ValueId::kNone && graph_.is_constant(dq.in[2])
                             ? graph_.value(dq.in[2]).constant
                             : Tensor{};
    if (dq.in.size() > 2 && zeros.empty()) return "its zero points are computed";
    fill(codes, scales, zeros, rows, is_signed_type(type), w);
    return "";
  }

  static bool is_signed_type(DType type) {
    return type == DType::kI8 || type == DType::kI4 || type == DType::kI2;
  }

  // Codes of a tensor as unsigned numbers.
  static std::vector<std::uint8_t> unsigned_codes(const Tensor& tensor, bool is_signed) {
    const int width = bits(tensor.dtype());
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(tensor.size()));
    unpack_codes(width, tensor.data(), codes.data(), tensor.size());
    const auto half = static_cast<std::uint8_t>(1u << (width - 1));
    const auto mask = static_cast<std::uint8_t>((1u << width) - 1);
    if (is_signed)
      for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>((code + half) & mask);
    return codes;
  }

  static void fill(const Tensor& codes, const Tensor& scales, const Tensor& zeros, bool rows, bool is_signed,
                   PackedWeight& w) {
    const std::vector<std::uint8_t> all = unsigned_codes(codes, is_signed);
    w.codes.resize(all.size());
    for (std::int64_t n = 0; n < w.n; ++n)
      for (std::int64_t k = 0; k < w.k; ++k)
        w.codes[static_cast<std::size_t>(n * w.k + k)] =
            all[static_cast<std::size_t>(rows ? n * w.k + k : k * w.n + n)];
    const std::int64_t count = w.n * w.blocks;
    w.scales.resize(static_cast<std::size_t>(count));
    const std::vector<std::uint8_t> z =
        zeros.empty() ? std::vector<std::uint8_t>{} : unsigned_codes(zeros, is_signed);
    const auto none = static_cast<std::uint8_t>(is_signed ? 1u << (w.width - 1) : 0);
    w.zeros.assign(static_cast<std::size_t>(count), none);
    for (std::int64_t n = 0; n < w.n; ++n)
      for (std::int64_t b = 0; b < w.blocks; ++b) {
        const auto to = static_cast<std::size_t>(n * w.blocks + b);
        const auto place = static_cast<std::size_t>(rows ? n * w.blocks + b : b * w.n + n);
        const std::size_t from = scales.size() == 1 ? 0 : place;
        w.scales[to] = scales.as<float>()[from];
        if (!z.empty()) w.zeros[to] = z[from];
      }
  }

  // Rows of codes, each padded to whole bytes with `filler(row)`.
  template <class Filler>
  static Tensor packed_rows(const std::vector<std::uint8_t>& codes, std::int64_t rows, std::int64_t columns,
                            std::int64_t padded, int width, Dims dims, const Filler& filler) {
    Tensor out = Tensor::allocate(DType::kU8, std::move(dims));
    std::vector<std::uint8_t> row(static_cast<std::size_t>(padded));
    const std::int64_t bytes = padded * width / 8;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(codes.begin() + r * columns, columns, row.begin());
      std::fill(row.begin() + columns, row.end(), filler(r));
      pack_codes(width, row.data(), out.mut<std::uint8_t>() + r * bytes, padded);
    }
    return out;
  }

  void write(NodeId id, const Node& dq, const PackedWeight& w) {
    const Node old = graph_.node(id);
    const std::string codes_name = graph_.value(dq.in[0]).name;  // a copy: adding constants moves the values
    Node node;
    node.domain = kMicrosoft;
    node.op = "MatMulNBits";
    node.name = old.name;
    const std::int64_t padded = w.blocks * w.block;
    const Tensor packed = packed_rows(
        w.codes, w.n, w.k, padded, w.width, {w.n, w.blocks, w.block * w.width / 8},
        [&](std::int64_t r) { return w.zeros[static_cast<std::size_t>((r + 1) * w.blocks - 1)]; });
    node.in = {
        old.in[0], graph_.add_constant(codes_name + "_packed", packed),
        graph_.add_constant(codes_name + "_scales", Tensor::from(DType::kF32, {w.n * w.blocks}, w.scales))};
    const auto middle = static_cast<std::uint8_t>(1u << (w.width - 1));
    if (std::any_of(w.zeros.begin(), w.zeros.end(), [&](std::uint8_t z) { return z != middle; })) {
      const std::int64_t each = 8 / w.width, bytes = (w.blocks + each - 1) / each;
      node.in.push_back(
          graph_.add_constant(codes_name + "_zero_points",
                              packed_rows(w.zeros, w.n, w.blocks, bytes * each, w.width, {w.n * bytes},
                                          [](std::int64_t) { return std::uint8_t{0}; })));
    }
    if (const ValueId bias = input(old, 2); bias != ValueId::kNone) {
      node.in.resize(5, ValueId::kNone);
      node.in.push_back(bias);
    }
    node.attrs = {{"K", w.k},
                  {"N", w.n},
                  {"bits", std::int64_t{w.width}},
                  {"block_size", w.block},
                  {"accuracy_level", std::int64_t{accuracy_}}};
    Value held = graph_.value(old.out[0]);  // the output keeps its name, once the old node is gone
    held.name += "_product";
    node.out = {graph_.add_value(std::move(held))};
    const NodeId made = graph_.insert_before(id, std::move(node));
    graph_.remove_node(id);
    graph_.set_output(made, 0, old.out[0]);
  }

  Graph& graph_;
  int accuracy_;
  QuantizedFormReport& report_;
};

}  // namespace

QuantizedFormReport to_matmul_nbits(Graph& graph, int accuracy_level) {
  QuantizedFormReport report;
  for_each_graph(graph, [&](Graph& one) {
    ToMatMulNBits(one, accuracy_level, report).run();
    one.drop_unused_values();
  });
  return report;
}

}  // namespace pare
