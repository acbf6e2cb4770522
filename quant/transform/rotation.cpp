#include "quant/transform/rotation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "engine/base/error.h"
#include "engine/numeric/table.h"

namespace pare::quant {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Values of a floating-point constant as float32.
std::vector<float> widened(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  format_info(tensor.dtype())
      .decode(static_cast<const std::byte*>(tensor.data()), values.data(), tensor.size());
  return values;
}

bool is_float(const Tensor& tensor) {
  return tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kF16 || tensor.dtype() == DType::kBF16;
}

// y = x W with a constant W [in, out].
bool is_product(const Graph& graph, NodeId id, int slot) {
  const Node& node = graph.node(id);
  return slot == 0 && node.is("MatMul") && graph.is_constant(node.in[1]) &&
         graph.value(node.in[1]).constant.dims().size() == 2 && is_float(graph.value(node.in[1]).constant);
}

class Stream {
 public:
  Stream(Graph& graph, RotationResult& result) : graph_(graph), result_(result) {}

  // From an embedding on; "" when the stream can be rotated.
  std::string walk(NodeId gather) {
    gather_ = gather;
    const Tensor& table = graph_.value(graph_.node(gather).in[0]).constant;
    width_ = table.dims()[1];
    std::string why = add(graph_.node(gather).out[0]);
    for (std::size_t i = 0; why.empty() && i < open_.size(); ++i) why = follow(open_[i]);
    if (why.empty() && norms_.empty()) why = "no normalization reads it";
    return why;
  }

  void rotate(std::uint64_t seed) {
    const Rotation r(width_, seed);
    const ValueId out = graph_.node(gather_).out[0];
    rotate_rows(gather_, 0, r);
    graph_.value(out).dtype = DType::kF32;
    for (const NodeId id : makers_) rotate_rows(id, 1, r);
    for (const NodeId norm : norms_) fold_norm(norm, r);
    result_.changed.insert(result_.changed.end(), values_.begin(), values_.end());
    for (const NodeId norm : norms_) result_.changed.push_back(graph_.node(norm).out[0]);
    ++result_.streams;
  }

 private:
  std::string add(ValueId id) {
    if (!values_.insert(id).second) return "";
    const Shape& shape = graph_.value(id).shape;
    if (graph_.is_output(id)) return fmt::format("'{}' is an output of the model", graph_.value(id).name);
    if (shape.rank() < 2 || !shape.dims.back().known() || shape.dims.back().value != width_)
      return fmt::format("'{}' has another width", graph_.value(id).name);
    open_.push_back(id);
    return "";
  }

  // What makes a value of the stream must be linear in it, or a product that can be rotated.
  std::string check_maker(ValueId id) {
    const NodeId producer = graph_.producer(id);
    if (producer == NodeId::kNone) return fmt::format("'{}' is an input of the model", graph_.value(id).name);
    const Node& node = graph_.node(producer);
    if (producer == gather_) return "";
    if (node.is("Add")) {
      for (const ValueId in : node.in)
        if (std::string why = add(in); !why.empty()) return why;
      return "";
    }
    if (node.is("Cast")) return add(node.in[0]);
    if (is_product(graph_, producer, 0)) {
      makers_.insert(producer);
      return "";
    }
    return fmt::format("{} '{}' writes into it", node.op, node.name);
  }

  std::string follow(ValueId id) {
    if (graph_.is_constant(id)) return fmt::format("the constant '{}' is added to it", graph_.value(id).name);
    if (std::string why = check_maker(id); !why.empty()) return why;
    for (const Use& use : graph_.users(id)) {
      const Node& node = graph_.node(use.node);
      if (node.is("Add")) {
        if (std::string why = add(node.out[0]); !why.empty()) return why;
      } else if (node.is("Cast")) {
        if (std::string why = add(node.out[0]); !why.empty()) return why;
      } else if (std::string why = check_norm(use); !why.empty()) {
        return why;
      }
    }
    return "";
  }

  std::string check_norm(const Use& use) {
    const Node& node = graph_.node(use.node);
    const std::int64_t axis = node.attr("axis", std::int64_t{-1});
    const int rank = graph_.value(node.in[0]).shape.rank();
    if (!node.is("RMSNormalization") || use.slot != 0 || (axis != -1 && axis != rank - 1) ||
        !graph_.is_constant(node.in[1]) || graph_.value(node.in[1]).constant.size() != width_)
      return fmt::format("{} '{}' reads it", node.op, node.name);
    if (graph_.is_output(node.out[0]))
      return fmt::format("'{}' is an output", graph_.value(node.out[0]).name);
    for (const Use& reader : graph_.users(node.out[0]))
      if (!is_product(graph_, reader.node, reader.slot))
        return fmt::format("{} '{}' reads a normalization of it", graph_.node(reader.node).op,
                           graph_.node(reader.node).name);
    norms_.insert(use.node);
    return "";
  }

  // The constant of an input, for this node alone.
  void replace(NodeId id, int slot, Tensor tensor) {
    const ValueId old = graph_.node(id).in[static_cast<std::size_t>(slot)];
    if (graph_.users(old).size() == 1 && !graph_.is_output(old)) {
      graph_.value(old).dtype = tensor.dtype();
      graph_.value(old).constant = std::move(tensor);
      return;
    }
    graph_.set_input(id, slot, graph_.add_constant(graph_.value(old).name + "_rotated", std::move(tensor)));
  }

  // T -> T R, row by row.
  void rotate_rows(NodeId id, int slot, const Rotation& r) {
    const Tensor& table = graph_.value(graph_.node(id).in[static_cast<std::size_t>(slot)]).constant;
    const std::vector<float> values = widened(table);
    Tensor turned = Tensor::allocate(DType::kF32, table.dims());
    std::vector<double> row(static_cast<std::size_t>(width_));
    for (std::int64_t i = 0; i < table.size(); i += width_) {
      std::copy_n(values.data() + i, width_, row.data());
      r.apply(row.data());
      for (std::int64_t c = 0; c < width_; ++c)
        turned.mut<float>()[i + c] = static_cast<float>(row[static_cast<std::size_t>(c)]);
    }
    replace(id, slot, std::move(turned));
  }

  // W -> R^T diag(gain) W for the products behind, gain -> 1.
  void fold_norm(NodeId norm, const Rotation& r) {
    const std::vector<float> gain = widened(graph_.value(graph_.node(norm).in[1]).constant);
    std::vector<Use> readers = graph_.users(graph_.node(norm).out[0]);
    for (const Use& reader : readers) {
      const Tensor& weight = graph_.value(graph_.node(reader.node).in[1]).constant;
      const std::vector<float> values = widened(weight);
      const std::int64_t outs = weight.dims()[1];
      Tensor turned = Tensor::allocate(DType::kF32, weight.dims());
      std::vector<double> column(static_cast<std::size_t>(width_));
      for (std::int64_t o = 0; o < outs; ++o) {
        for (std::int64_t c = 0; c < width_; ++c)
          column[static_cast<std::size_t>(c)] =
              static_cast<double>(gain[static_cast<std::size_t>(c)]) *
              static_cast<double>(values[static_cast<std::size_t>(c * outs + o)]);
        r.apply(column.data());  // R^T w is (w^T R)^T
        for (std::int64_t c = 0; c < width_; ++c)
          turned.mut<float>()[c * outs + o] = static_cast<float>(column[static_cast<std::size_t>(c)]);
      }
      replace(reader.node, 1, std::move(turned));
    }
    const Tensor& old = graph_.value(graph_.node(norm).in[1]).constant;
    Tensor ones = Tensor::allocate(DType::kF32, old.dims());
    std::fill_n(ones.mut<float>(), ones.size(), 1.0f);
    replace(norm, 1, std::move(ones));
  }

  Graph& graph_;
  RotationResult& result_;
  NodeId gather_ = NodeId::kNone;
  std::int64_t width_ = 0;
  std::set<ValueId> values_;
  std::vector<ValueId> open_;
  std::set<NodeId> makers_, norms_;
};

// W_v and W_o of one attention, head by head.
void rotate_heads(Graph& graph, NodeId id, RotationResult& result) {
  const Node attention = graph.node(id);
  const std::int64_t q_heads = attention.attr("q_num_heads", std::int64_t{0}),
                     kv_heads = attention.attr("kv_num_heads", std::int64_t{0});
  if (q_heads < 1 || kv_heads < 1 || attention.in.size() < 3) return;
  const ValueId v = attention.in[2], y = attention.out[0];
  const NodeId maker = graph.producer(v), reader = graph.only_user(y);
  if (maker == NodeId::kNone || reader == NodeId::kNone || graph.only_user(v) != id ||
      !is_product(graph, maker, 0) || !is_product(graph, reader, 0) || graph.node(reader).in[0] != y)
    return;
  // Values that are cached from call to call are read by others too: the attention has more outputs then.
  for (std::size_t i = 1; i < attention.out.size(); ++i)
    if (attention.out[i] != ValueId::kNone) return;
  const ValueId wv = graph.node(maker).in[1], wo = graph.node(reader).in[1];
  const Dims dv = graph.value(wv).constant.dims(), dout = graph.value(wo).constant.dims();
  if (dv[1] % kv_heads != 0 || dv[1] / kv_heads * q_heads != dout[0] || graph.users(wv).size() != 1 ||
      graph.users(wo).size() != 1)
    return;
  const std::int64_t size = dv[1] / kv_heads;
  const Rotation r(size, 0);
  std::vector<double> part(static_cast<std::size_t>(size));
  const std::vector<float> from_v = widened(graph.value(wv).constant),
                           from_o = widened(graph.value(wo).constant);
  Tensor new_v = Tensor::allocate(DType::kF32, dv), new_o = Tensor::allocate(DType::kF32, dout);
  for (std::int64_t at = 0; at < new_v.size(); at += size) {
    std::copy_n(from_v.data() + at, size, part.data());
    r.apply(part.data());
    for (std::int64_t c = 0; c < size; ++c)
      new_v.mut<float>()[at + c] = static_cast<float>(part[static_cast<std::size_t>(c)]);
  }
  for (std::int64_t head = 0; head < q_heads; ++head)
    for (std::int64_t o = 0; o < dout[1]; ++o) {
      const auto at = [&](std::int64_t c) { return (head * size + c) * dout[1] + o; };
      for (std::int64_t c = 0; c < size; ++c)
        part[static_cast<std::size_t>(c)] = static_cast<double>(from_o[static_cast<std::size_t>(at(c))]);
      r.apply(part.data());
      for (std::int64_t c = 0; c < size; ++c)
        new_o.mut<float>()[at(c)] = static_cast<float>(part[static_cast<std::size_t>(c)]);
    }
  graph.value(wv).constant = std::move(new_v);
  graph.value(wo).constant = std::move(new_o);
  for (const ValueId w : {wv, wo}) graph.value(w).dtype = DType::kF32;
  result.changed.push_back(v);
  result.changed.push_back(y);
  ++result.attentions;
}

}  // namespace

Rotation::Rotation(std::int64_t n, std::uint64_t seed) : n_(n), power_(1), rest_(n) {
  PARE_ASSERT(n > 0);
  while (rest_ % 2 == 0) {
    rest_ /= 2;
    power_ *= 2;
  }
  signs_.assign(static_cast<std::size_t>(n), 1.0);
  std::uint64_t state = seed;  // splitmix64
  for (double& sign : signs_) {
    if (seed == 0) break;
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    sign = ((z ^ (z >> 31)) & 1) != 0 ? -1.0 : 1.0;
  }
  const auto m = static_cast<double>(rest_);
  for (std::int64_t i = 0; i < rest_; ++i)
    for (std::int64_t j = 0; j < rest_; ++j)
      cosines_.push_back(std::sqrt((j == 0 ? 1.0 : 2.0) / m) *
                         std::cos(kPi * (static_cast<double>(i) + 0.5) * static_cast<double>(j) / m));
}

void Rotation::butterflies(double* x) const {
  const double factor = 1 / std::sqrt(static_cast<double>(power_));
  for (std::int64_t block = 0; block < n_; block += power_) {
    double* p = x + block;
    for (std::int64_t h = 1; h < power_; h *= 2)
      for (std::int64_t i = 0; i < power_; i += 2 * h)
        for (std::int64_t j = i; j < i + h; ++j) {
          const double a = p[j], b = p[j + h];
          p[j] = a + b;
          p[j + h] = a - b;
        }
    for (std::int64_t i = 0; i < power_; ++i) p[i] *= factor;
  }
}

void Rotation::apply(double* x) const {
  for (std::int64_t i = 0; i < n_; ++i) x[i] *= signs_[static_cast<std::size_t>(i)];
  butterflies(x);
  if (rest_ == 1) return;
  std::vector<double> in(static_cast<std::size_t>(rest_));
  for (std::int64_t p = 0; p < power_; ++p) {
    for (std::int64_t i = 0; i < rest_; ++i) in[static_cast<std::size_t>(i)] = x[i * power_ + p];
    for (std::int64_t j = 0; j < rest_; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < rest_; ++i)
        sum += in[static_cast<std::size_t>(i)] * cosines_[static_cast<std::size_t>(i * rest_ + j)];
      x[j * power_ + p] = sum;
    }
  }
}

RotationResult rotate(Graph& graph, std::uint64_t seed) {
  RotationResult result;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (node.is("Gather") && node.attr("axis", std::int64_t{0}) == 0 && graph.is_constant(node.in[0])) {
      const Tensor& table = graph.value(node.in[0]).constant;
      if (table.dims().size() != 2 || !is_float(table)) continue;
      Stream stream(graph, result);
      const std::string why = stream.walk(id);
      if (why.empty())
        stream.rotate(seed);
      else
        result.notes.push_back(fmt::format("the stream behind '{}' is not rotated: {}", node.name, why));
    } else if (node.is("Attention")) {
      rotate_heads(graph, id, result);
    }
  }
  return result;
}

}  // namespace pare::quant
